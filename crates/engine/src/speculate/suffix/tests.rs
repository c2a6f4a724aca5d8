//! The tree against a search through the whole text.

use proptest::prelude::*;
use proptest::sample::Index;

use super::SuffixTree;
use draftscope_protocol::TokenId;

fn tree(text: &[u32]) -> SuffixTree {
    let mut tree = SuffixTree::default();
    text.iter().for_each(|token| tree.push(TokenId(*token)));
    tree
}

/// Length of the longest end of `text` that also occurs before, and the tokens that followed it there.
fn naive(text: &[u32], most: usize) -> (usize, Vec<u32>) {
    let len = (0..text.len().min(most + 1)).rev().find(|len| {
        let end = &text[text.len() - len..];
        (0..text.len() - len).any(|at| text[at..].starts_with(end))
    });
    let len = len.unwrap_or(0);
    let end = &text[text.len() - len..];
    let places = (0..text.len().saturating_sub(len)).filter(|at| text[*at..].starts_with(end));
    (len, places.map(|at| text[at + len]).collect())
}

fn check(tree: &SuffixTree, text: &[u32]) -> Result<(), TestCaseError> {
    prop_assert_eq!(tree.text().iter().map(|token| token.0).collect::<Vec<_>>(), text);
    let (len, followed) = naive(text, usize::MAX - 1);
    prop_assert_eq!(tree.match_len(), len);
    let cursor = tree.cursor();
    prop_assert_eq!(cursor.len(), len);
    let next = tree.next(&cursor);
    prop_assert_eq!(next.is_some(), len > 0);
    if let Some(next) = next {
        let count = |token| followed.iter().filter(|other| **other == token).count();
        let most = followed.iter().map(|token| count(*token)).max().unwrap();
        prop_assert_eq!(count(next.token.0), most, "{:?} after {:?}", next, text);
        prop_assert_eq!(text[next.from], next.token.0);
        prop_assert!(text[..next.from].ends_with(&text[text.len() - len..]), "the place is one of the matches");
    }
    Ok(())
}

#[derive(Clone, Debug)]
enum Change {
    Push(Vec<u32>),
    Cut(Index),
    Branch(Index, Vec<u32>),
}

fn change() -> impl Strategy<Value = Change> {
    let tokens = || prop::collection::vec(0..3u32, 0..12);
    prop_oneof![
        3 => tokens().prop_map(Change::Push),
        1 => any::<Index>().prop_map(Change::Cut),
        1 => (any::<Index>(), tokens()).prop_map(|(at, tokens)| Change::Branch(at, tokens)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn the_longest_match_and_its_most_frequent_continuation_are_found(text in prop::collection::vec(0..4u32, 0..40)) {
        let mut tree = SuffixTree::default();
        for end in 0..=text.len() {
            check(&tree, &text[..end])?;
            text.get(end).into_iter().for_each(|token| tree.push(TokenId(*token)));
        }
    }

    #[test]
    fn rollback_and_branches_are_exact(changes in prop::collection::vec(change(), 1..24)) {
        let (mut text, mut grown) = (Vec::new(), SuffixTree::default());
        for change in changes {
            match change {
                Change::Push(tokens) => {
                    tokens.iter().for_each(|token| grown.push(TokenId(*token)));
                    text.extend(tokens);
                }
                Change::Cut(at) => {
                    let len = at.index(text.len() + 1);
                    grown.truncate(len);
                    text.truncate(len);
                }
                Change::Branch(at, tokens) => {
                    let (mut other, mut branch) = (grown.clone(), text.clone());
                    let len = at.index(text.len() + 1);
                    other.truncate(len);
                    branch.truncate(len);
                    tokens.iter().for_each(|token| other.push(TokenId(*token)));
                    branch.extend(tokens);
                    check(&other, &branch)?;
                }
            }
            check(&grown, &text)?;
            prop_assert_eq!(grown.nodes(), tree(&text).nodes(), "as if it had been made from this text");
        }
    }

    #[test]
    fn a_cursor_that_follows_drafts_matches_what_occurred(
        text in prop::collection::vec(0..3u32, 0..30),
        drafts in prop::collection::vec(0..4u32, 1..12),
    ) {
        let tree = tree(&text);
        let (mut cursor, mut whole) = (tree.cursor(), text.clone());
        for draft in drafts {
            cursor = tree.follow(cursor, TokenId(draft));
            whole.push(draft);
            // the longest end of text and drafts that the text continues
            let continued = |len: &usize| {
                let end = &whole[whole.len() - len..];
                (0..text.len()).any(|at| text[at..].starts_with(end) && at + len < text.len())
            };
            let longest = (1..=whole.len()).rev().find(continued).unwrap_or(0);
            let len = cursor.len();
            prop_assert!(len >= longest, "{} instead of {}", len, longest);
            let end = &whole[whole.len() - len..];
            prop_assert!(text.windows(len.max(1)).any(|window| window == end) || len == 0);
        }
    }
}

#[test]
fn equal_tokens_and_long_repetitions_cost_no_more_than_others() {
    let mut tree = tree(&[7; 20_000]);
    assert_eq!(tree.match_len(), 19_999);
    let mut cursor = tree.cursor();
    for _ in 0..15 {
        let next = tree.next(&cursor).unwrap();
        assert_eq!(next.token, TokenId(7));
        cursor = tree.follow(cursor, next.token);
    }
    assert_eq!(tree.follow(cursor, TokenId(8)).len(), 0);
    tree.truncate(3);
    assert_eq!(tree.match_len(), 2);
}

/// Texts of 100,000 tokens: a random one, one with much repetition, and a Fibonacci word, which has the most nodes. An
/// optimised build takes about half a microsecond a token; the limit of the test allows for builds without optimisation.
#[test]
fn a_long_text_takes_at_most_64_bytes_and_little_time_a_token() {
    const LEN: usize = 100_000;
    let mut state = 1_u64;
    let mut random = |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    // a few tokens are frequent and most are rare, as in a text
    let mut word = || random(40_000) * random(1000) / 1000 * random(1000) / 1000;
    let plain: Vec<u32> = (0..LEN).map(|_| word() as u32).collect();
    let copied: Vec<u32> = (0..LEN).map(|at| plain[at % 9_973 + at / 20_000]).collect();
    let mut fibonacci = vec![0, 1];
    while fibonacci.len() < LEN {
        let longer: Vec<u32> =
            fibonacci.iter().flat_map(|digit| if *digit == 0 { vec![0, 1] } else { vec![0] }).collect();
        fibonacci = longer;
    }
    for (name, text) in [("plain", plain), ("copied", copied), ("fibonacci", fibonacci[..LEN].to_vec())] {
        let mut tree = tree(&text);
        let bytes = tree.bytes() as f64 / LEN as f64;
        assert!(bytes <= 64.0, "{name}: {bytes:.1} bytes a token");
        let times = (0..5).map(|_| {
            let started = std::time::Instant::now();
            tree.truncate(LEN - 1000);
            text[LEN - 1000..].iter().for_each(|token| tree.push(TokenId(*token)));
            started.elapsed().as_secs_f64() * 1e6 / 1000.0
        });
        let least = times.fold(f64::INFINITY, f64::min);
        println!("{name}: {bytes:.1} bytes and {least:.2} µs a token, removed and added");
        assert!(least <= 20.0, "{name}: {least:.2} µs a token");
    }
}
