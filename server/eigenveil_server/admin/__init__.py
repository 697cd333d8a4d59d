"""Operator commands other than `serve`: create a federation, invite, deny, back up, check. May import every
package of the coordinator but `front`."""
