"""What people read: a plan in words, a release, its report and its proof. Imports no site."""
