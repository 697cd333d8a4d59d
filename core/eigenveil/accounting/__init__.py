"""Privacy accounting: costs, composition, neighbouring relations, budgets and ledgers."""
