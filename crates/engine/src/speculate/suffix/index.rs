//! A hash table from a node and a token to the child whose edge begins with that token.
//!
//! It stores child ids only, 4 bytes each: the key of an entry is read from the tree. Invariant: every entry lies at or
//! after its home slot, with no empty slot between (linear probing, entries move back when one is removed).

/// An empty slot.
const EMPTY: u32 = u32::MAX;
/// Slots of the smallest table.
const LEAST: usize = 16;

/// A key: node and token.
pub(super) type Key = (u32, u32);

/// The table. Callers pass a function that reads the key of an entry.
#[derive(Clone, Debug, Default)]
pub(super) struct ChildIndex {
    slots: Vec<u32>,
    used: usize,
}

impl ChildIndex {
    /// The entry that `is_it` accepts among those that may have this key.
    pub(super) fn find(&self, key: Key, key_of: impl Fn(u32) -> Key) -> Option<u32> {
        self.slot(key, |entry| key_of(entry) == key).map(|slot| self.slots[slot])
    }

    /// Adds an entry, whose key is not in the table.
    pub(super) fn insert(&mut self, entry: u32, key_of: impl Fn(u32) -> Key) {
        if (self.used + 1) * 4 > self.slots.len() * 3 {
            self.grow(&key_of);
        }
        self.used += 1;
        self.put(entry, key_of(entry));
    }

    /// Replaces an entry by one with the same key.
    pub(super) fn replace(&mut self, old: u32, new: u32, key: Key) {
        if let Some(slot) = self.slot(key, |entry| entry == old) {
            self.slots[slot] = new;
        }
    }

    /// Removes an entry; `key` is its key.
    pub(super) fn remove(&mut self, entry: u32, key: Key, key_of: impl Fn(u32) -> Key) {
        let Some(mut hole) = self.slot(key, |other| other == entry) else {
            return;
        };
        let count = self.slots.len();
        let mut at = (hole + 1) % count;
        while self.slots[at] != EMPTY {
            let home = self.home(key_of(self.slots[at]));
            // whether the hole lies between the home of this entry and its slot
            if (at + count - home) % count >= (at + count - hole) % count {
                self.slots[hole] = self.slots[at];
                hole = at;
            }
            at = (at + 1) % count;
        }
        self.slots[hole] = EMPTY;
        self.used -= 1;
    }

    /// Bytes of the table.
    pub(super) fn bytes(&self) -> usize {
        self.slots.capacity() * size_of::<u32>()
    }

    fn slot(&self, key: Key, is_it: impl Fn(u32) -> bool) -> Option<usize> {
        if self.slots.is_empty() {
            return None;
        }
        let mut at = self.home(key);
        while self.slots[at] != EMPTY {
            if is_it(self.slots[at]) {
                return Some(at);
            }
            at += 1;
            if at == self.slots.len() {
                at = 0;
            }
        }
        None
    }

    fn put(&mut self, entry: u32, key: Key) {
        let mut at = self.home(key);
        while self.slots[at] != EMPTY {
            at = (at + 1) % self.slots.len();
        }
        self.slots[at] = entry;
    }

    /// Half as many slots more: at least half of them stay used, so that the table is small.
    fn grow(&mut self, key_of: impl Fn(u32) -> Key) {
        let count = (self.slots.len() * 3 / 2).max(LEAST);
        let old = std::mem::replace(&mut self.slots, vec![EMPTY; count]);
        for entry in old.into_iter().filter(|entry| *entry != EMPTY) {
            self.put(entry, key_of(entry));
        }
    }

    /// The slot that an entry of this key would take in an empty table.
    fn home(&self, (node, token): Key) -> usize {
        let mixed = ((u64::from(node) << 32) | u64::from(token)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mixed = (mixed ^ (mixed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        (((mixed >> 32) * self.slots.len() as u64) >> 32) as usize
    }
}
