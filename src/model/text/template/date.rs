//! The date that a chat template gets from `strftime_now`.
//!
//! Invariant: it is the day, in UTC, on which the template was compiled, so the beginning of a conversation stays
//! the same from turn to turn and its cache stays valid. `SOURCE_DATE_EPOCH` (reproducible-builds.org), a
//! number of seconds since 1970, sets it. There is no time of day: it would change the prompt in every turn.

use std::fmt::Write as _;
use std::time::{SystemTime, UNIX_EPOCH};

const SECONDS: i64 = 86_400;
const DAYS: [&str; 7] = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];
const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];

/// Environment variable that sets the day.
pub(super) const EPOCH: &str = "SOURCE_DATE_EPOCH";

/// Seconds since 1970; [`EPOCH`] overrides the clock.
pub(super) fn now() -> i64 {
    let asked = std::env::var(EPOCH).ok().and_then(|seconds| seconds.trim().parse::<i64>().ok());
    let clock = || SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() as i64);
    asked.unwrap_or_else(clock)
}

/// A day of the Gregorian calendar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Day {
    year: i64,
    /// From 0.
    month: usize,
    /// From 1.
    day: i64,
    /// From 0, which is Sunday.
    weekday: usize,
}

impl Day {
    /// Today, or the day that [`EPOCH`] sets.
    pub(super) fn today() -> Self {
        Self::since_1970(now().div_euclid(SECONDS))
    }

    /// The date `days` after 1 January 1970: Howard Hinnant's `civil_from_days`, with eras of 400 years that begin in
    /// March.
    fn since_1970(days: i64) -> Self {
        let shifted = days + 719_468;
        let (era, of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
        let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
        let of_year = of_era - (365 * year + year / 4 - year / 100);
        let from_march = (5 * of_year + 2) / 153;
        let month = (from_march + 2) % 12;
        Self {
            year: year + era * 400 + i64::from(month < 2),
            month: month as usize,
            day: of_year - (153 * from_march + 2) / 5 + 1,
            weekday: (days + 4).rem_euclid(7) as usize,
        }
    }

    /// The date as Python's `strftime` writes it; `None` if a code is no part of a date.
    pub(super) fn format(self, format: &str) -> Option<String> {
        let (month, weekday) = (MONTHS[self.month], DAYS[self.weekday]);
        let mut out = String::with_capacity(format.len());
        let mut rest = format.chars();
        while let Some(next) = rest.next() {
            if next != '%' {
                out.push(next);
                continue;
            }
            let _ = match (rest.next()?, self.month + 1) {
                ('d', _) => write!(out, "{:02}", self.day),
                ('e', _) => write!(out, "{:2}", self.day),
                ('m', number) => write!(out, "{number:02}"),
                ('Y', _) => write!(out, "{}", self.year),
                ('y', _) => write!(out, "{:02}", self.year.rem_euclid(100)),
                ('B', _) => write!(out, "{month}"),
                ('b', _) => write!(out, "{}", &month[..3]),
                ('A', _) => write!(out, "{weekday}"),
                ('a', _) => write!(out, "{}", &weekday[..3]),
                ('-', number) => match rest.next()? {
                    'd' => write!(out, "{}", self.day),
                    'm' => write!(out, "{number}"),
                    _ => return None,
                },
                ('%', _) => write!(out, "%"),
                _ => return None,
            };
        }
        Some(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_written_as_in_python() {
        let all = "%A %a %d %-d %e %m %-m %B %b %y %Y";
        for (days, written) in [
            (0, "Thursday Thu 01 1  1 01 1 January Jan 70 1970"),
            (-1, "Wednesday Wed 31 31 31 12 12 December Dec 69 1969"),
            (11_016, "Tuesday Tue 29 29 29 02 2 February Feb 00 2000"),
            (19_782, "Thursday Thu 29 29 29 02 2 February Feb 24 2024"),
            (20_000, "Friday Fri 04 4  4 10 10 October Oct 24 2024"),
            (47_540, "Sunday Sun 28 28 28 02 2 February Feb 00 2100"),
        ] {
            assert_eq!(Day::since_1970(days).format(all).unwrap(), written);
        }
        assert_eq!(Day::since_1970(0).format("100 %%, é").unwrap(), "100 %, é");
        for other in ["%H:%M", "%", "%-", "%-H", "%é"] {
            assert_eq!(Day::since_1970(0).format(other), None, "{other}");
        }
    }
}
