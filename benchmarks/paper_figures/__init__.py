"""The figures of the four papers, and one picture for each algorithm's page: `make paper-figures`."""
