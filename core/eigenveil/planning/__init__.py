"""Planning: the cost and predicted error of a study, from public numbers; no record is read. Imports
`session` and `algorithms`; `error_models` holds an error model for each family of algorithms."""
