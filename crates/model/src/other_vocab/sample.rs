//! Text by which the two ways to draft with another tokenizer are compared.

/// Prose and code in equal parts: what vocabularies share of them differs most, because few share long runs of spaces.
pub(super) const TEXT: &str = r#"The harbour was quiet when the last boat came in. Martha had waited on the wall since noon, with a
thermos of tea and a book she did not read. "You're late," she said, and her brother laughed. Nobody in the family had ever
been on time; their grandfather missed his own wedding by an hour and a quarter. They walked home along the river, past
the mill and the 14 stone bridges, and talked about what the winter of 1987 had cost them.

- Rain falls when warm, moist air rises and cools.
- Droplets grow until the updraught can no longer carry them.

class Account:
    """An account with a balance in cents."""

    def __init__(self, owner, balance=0):
        self.owner = owner
        self.balance = balance

    def transfer(self, other, amount):
        if amount <= 0 or amount > self.balance:
            raise ValueError(f"cannot transfer {amount}")
        for step in range(3):
            if other.lock(timeout=0.5):
                self.balance -= amount
                other.balance += amount
                return {"from": self.owner, "to": other.owner}
        return None
"#;
