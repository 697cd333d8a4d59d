"""Pages for people, made at the server: what a site's page and the coordinator's console share.

Nothing on a page comes from elsewhere, nothing is inline, and every page works without its one script.
"""
