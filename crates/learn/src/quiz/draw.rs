//! Which ten items a quiz asks.
//!
//! Invariant: no item twice, every category of the bank at least once, and no simple way to judge is right in more than
//! half of them, as far as the session's rounds allow.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};

use super::belief::Belief;
use super::beliefs::SIMPLE;
use super::item::{Category, Item};
use super::shown::Shown;

/// Items of a quiz.
pub(super) const ITEMS: usize = 10;

/// Of these at most so many from the session on show.
const FROM_SESSION: usize = 3;

/// Draws that are tried for one that rewards no simple way to judge.
const TRIES: usize = 64;

/// Draws the items of a quiz: up to three of the session's rounds, the rest from the bank, in an arbitrary order. The
/// same seed, bank and rounds give the same quiz.
pub(super) fn draw(bank: &[Item], session: &[Item], seed: u64) -> Vec<Item> {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let surprising: Vec<&Item> = bank.iter().filter(|item| most_rewarded(std::slice::from_ref(item)) == 0).collect();
    let mut best: Option<(usize, Vec<Item>)> = None;
    for _ in 0..TRIES {
        let items = draw_once([bank, session], &surprising, &mut random);
        let most = most_rewarded(&items);
        if best.as_ref().is_none_or(|(least, _)| most < *least) {
            best = Some((most, items));
        }
        if most <= ITEMS / 2 {
            break;
        }
    }
    best.map(|(_, items)| items).unwrap_or_default()
}

/// In how many items the simple way to judge that is right most often is right.
fn most_rewarded(items: &[Item]) -> usize {
    let score = |way: &Belief| score_of(items, |shown| way.answer(shown).as_ref() == Some(&shown.right));
    SIMPLE.iter().map(score).max().unwrap_or(0)
}

/// How many items somebody answers rightly.
pub(super) fn score_of(items: &[Item], is_right: impl Fn(&Shown) -> bool) -> usize {
    items.iter().filter(|item| is_right(&Shown::of(item))).count()
}

fn draw_once([bank, session]: [&[Item]; 2], surprising: &[&Item], random: &mut ChaCha8Rng) -> Vec<Item> {
    let mut items: Vec<Item> = Vec::new();
    let of_session = 1 + random.next_u64() as usize % FROM_SESSION;
    for item in shuffled(session, random).into_iter().take(of_session) {
        add(&mut items, item);
    }
    let order = shuffled(bank, random);
    // what the bank has categories for is asked once, and then anything
    for category in Category::ALL {
        if items.iter().all(|item| item.category != Some(*category))
            && let Some(item) = order.iter().find(|item| item.category == Some(*category) && is_new(&items, item))
        {
            add(&mut items, item);
        }
    }
    // those that surprise a simple judge first: in most categories the target's best token decides
    shuffled(surprising.iter().copied(), random).into_iter().chain(order).for_each(|item| add(&mut items, item));
    let mut keyed: Vec<_> = items.into_iter().map(|item| (random.next_u64(), item)).collect();
    keyed.sort_by_key(|(key, _)| *key);
    keyed.into_iter().map(|(_, item)| item).collect()
}

fn is_new(items: &[Item], item: &Item) -> bool {
    !items.iter().any(|other| other.asks_same(item) || other.continues_same(item))
}

fn add(items: &mut Vec<Item>, item: &Item) {
    if items.len() < ITEMS && is_new(items, item) {
        items.push(item.clone());
    }
}

fn shuffled<'a>(items: impl IntoIterator<Item = &'a Item>, random: &mut ChaCha8Rng) -> Vec<&'a Item> {
    let mut keyed: Vec<_> = items.into_iter().map(|item| (random.next_u64(), item)).collect();
    keyed.sort_by_key(|(key, _)| *key);
    keyed.into_iter().map(|(_, item)| item).collect()
}
