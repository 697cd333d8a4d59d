"""`eigenveil-site`: what a person at a site runs. Imports all of the site; nothing imports it."""
