"""What a study would cost and how far off its answer would be, from public numbers: no record is read.

Imports what asks (`session`, `algorithms`); `error_models` holds one error law a family of algorithms.
"""
