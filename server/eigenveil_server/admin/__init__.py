"""What an operator's commands do beside serving: make a federation, invite, shut out, look after. May import
everything of the coordinator but `rpc` and `front`."""
