//! Sets of characters.

/// The largest code point.
const LAST: u32 = 0x10_FFFF;

/// A set of code points, as ranges that ascend and do not touch; both ends belong to a range.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct CharSet(Vec<(u32, u32)>);

impl CharSet {
    /// The characters of these ranges, which may overlap.
    pub(super) fn of(mut ranges: Vec<(u32, u32)>) -> Self {
        ranges.sort_unstable();
        let mut merged: Vec<(u32, u32)> = Vec::with_capacity(ranges.len());
        for (from, to) in ranges {
            match merged.last_mut() {
                Some(last) if from <= last.1.saturating_add(1) => last.1 = last.1.max(to),
                _ => merged.push((from, to)),
            }
        }
        Self(merged)
    }

    /// One character.
    pub(super) fn one(c: char) -> Self {
        Self(vec![(c.into(), c.into())])
    }

    /// All characters.
    pub(super) fn all() -> Self {
        Self(vec![(0, LAST)])
    }

    /// All other characters.
    pub(super) fn complement(&self) -> Self {
        let (mut from, mut left) = (0, Vec::new());
        for (first, last) in &self.0 {
            if *first > from {
                left.push((from, first - 1));
            }
            from = last + 1;
        }
        if from <= LAST {
            left.push((from, LAST));
        }
        Self(left)
    }

    /// Adds characters; returns whether some of them are new.
    pub(super) fn add(&mut self, other: &Self) -> bool {
        let is_new = |(from, to): &(u32, u32)| !self.0.iter().any(|(first, last)| first <= from && to <= last);
        if !other.0.iter().any(is_new) {
            return false;
        }
        *self = Self::of([&self.0[..], &other.0[..]].concat());
        true
    }

    /// Whether both have a character.
    pub(super) fn meets(&self, other: &Self) -> bool {
        let (mut mine, mut theirs) = (self.0.iter().peekable(), other.0.iter().peekable());
        while let (Some(a), Some(b)) = (mine.peek(), theirs.peek()) {
            match (a.1 < b.0, b.1 < a.0) {
                (true, _) => mine.next(),
                (_, true) => theirs.next(),
                _ => return true,
            };
        }
        false
    }

    /// All characters whose first byte, in UTF-8, is that of one of these.
    pub(super) fn with_same_first_byte(&self) -> Self {
        // from, to, and the bits that are not in the first byte
        const LENGTHS: [(u32, u32, u32); 4] =
            [(0, 0x7F, 0), (0x80, 0x7FF, 0x3F), (0x800, 0xFFFF, 0xFFF), (0x1_0000, LAST, 0x3_FFFF)];
        let of_length = |(first, last): (u32, u32)| {
            LENGTHS
                .into_iter()
                .filter(move |(from, to, _)| first <= *to && last >= *from)
                .map(move |(from, to, rest)| ((first.max(from) & !rest).max(from), (last.min(to) | rest).min(to)))
        };
        Self::of(self.0.iter().copied().flat_map(of_length).collect())
    }

    /// Whether it has none.
    pub(super) fn is_empty(&self) -> bool {
        self.regex_ranges().next().is_none()
    }

    /// As a class of a regular expression, without `/`.
    pub(super) fn regex(&self) -> String {
        let ranges = self.regex_ranges().map(|(from, to)| match from == to {
            true => escaped(from),
            false => format!("{}-{}", escaped(from), escaped(to)),
        });
        format!("[{}]", ranges.collect::<String>())
    }

    /// The ranges between code points that are characters.
    fn regex_ranges(&self) -> impl Iterator<Item = (u32, u32)> {
        const SURROGATES: std::ops::RangeInclusive<u32> = 0xD800..=0xDFFF;
        let clip = |(from, to): &(u32, u32)| {
            let from = if SURROGATES.contains(from) { 0xE000 } else { *from };
            let to = if SURROGATES.contains(to) { 0xD7FF } else { *to };
            (from, to)
        };
        self.0.iter().map(clip).filter(|(from, to)| from <= to)
    }
}

fn escaped(code: u32) -> String {
    match char::from_u32(code).filter(char::is_ascii_alphanumeric) {
        Some(plain) => plain.to_string(),
        None => format!("\\x{{{code:X}}}"),
    }
}
