//! The time that a chat template gets from `strftime_now`.
//!
//! Invariant: it is the time, in UTC, at which the template was compiled, so the beginning of a conversation stays
//! the same from turn to turn and its cache stays valid. `SOURCE_DATE_EPOCH` (reproducible-builds.org), a
//! number of seconds since 1970, sets it.

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

/// Environment variable that sets the time.
pub(in super::super) const EPOCH: &str = "SOURCE_DATE_EPOCH";

/// The last second of the year 9999, which is Python's last one.
const LAST: i64 = 253_402_300_799;

/// Seconds since 1970; [`EPOCH`] overrides the clock.
pub(in super::super) fn now() -> i64 {
    let asked = std::env::var(EPOCH).ok().and_then(|seconds| seconds.trim().parse::<i64>().ok());
    let clock = || SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() as i64);
    asked.unwrap_or_else(clock)
}

/// A second of the Gregorian calendar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Time {
    /// Since 1970.
    seconds: i64,
    year: i64,
    /// From 0.
    month: usize,
    /// From 1.
    day: i64,
    /// From 0, which is Sunday.
    weekday: i64,
    /// Day of the year, from 0.
    of_year: i64,
}

/// How a field is filled up to its width.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fill {
    Zeros,
    Blanks,
    Nothing,
}

/// A field of a format: text, or a number with its usual width.
enum Field {
    Text(String),
    Number(i64, usize, Fill),
}

impl Time {
    /// The time `seconds` after the beginning of 1970; at most in the year 9999.
    pub(super) fn since_1970(seconds: i64) -> Self {
        let seconds = seconds.clamp(-LAST / 5, LAST);
        let days = seconds.div_euclid(SECONDS);
        let (year, month, day) = date(days);
        let before = |year: i64| 365 * year + year / 4 - year / 100 + year / 400;
        let of_year = days + 719_162 - before(year - 1);
        Self { seconds, year, month, day, weekday: (days + 4).rem_euclid(7), of_year }
    }

    /// The time as Python's `strftime` writes it on Linux, without a time zone; fields that do not exist stay as they
    /// are. `None` if a field is wider than `most`.
    pub(super) fn format(self, format: &str, most: usize) -> Option<String> {
        let mut out = String::with_capacity(format.len());
        let mut rest = format;
        while let Some((before, after)) = rest.split_once('%') {
            out.push_str(before);
            rest = self.directive(&mut out, after, most)?;
        }
        out.push_str(rest);
        Some(out)
    }

    /// Writes what stands after a `%`, and returns what follows it: flags, a width, `E` or `O`, and a letter.
    fn directive<'t>(self, out: &mut String, directive: &'t str, most: usize) -> Option<&'t str> {
        let after_flags = directive.trim_start_matches(['-', '_', '0', '^', '#']);
        let flags = &directive[..directive.len() - after_flags.len()];
        let after_width = after_flags.trim_start_matches(|c: char| c.is_ascii_digit());
        let width = &after_flags[..after_flags.len() - after_width.len()];
        let letters = after_width.strip_prefix(['E', 'O']).unwrap_or(after_width);
        let letter = letters.chars().next();
        let Some((letter, field)) = letter.and_then(|letter| Some((letter, self.field(letter)?))) else {
            out.push('%');
            return Some(directive);
        };
        let width =
            if width.is_empty() { None } else { Some(width.parse::<usize>().ok().filter(|width| *width <= most)?) };
        let asked = flags.chars().rev().find_map(|flag| match flag {
            '-' => Some(Fill::Nothing),
            '_' => Some(Fill::Blanks),
            '0' => Some(Fill::Zeros),
            _ => None,
        });
        let (text, usual, fill) = match field {
            Field::Text(text) => (text, 0, Fill::Blanks),
            Field::Number(number, usual, fill) => (number.to_string(), usual, fill),
        };
        let text = match (flags.contains('^'), flags.contains('#')) {
            (true, _) => text.to_uppercase(),
            (_, true) if matches!(letter, 'p' | 'Z') => text.to_lowercase(),
            (_, true) => text.to_uppercase(),
            _ => text,
        };
        let fill = asked.unwrap_or(fill);
        let wanted = if fill == Fill::Nothing { width.unwrap_or(0) } else { width.unwrap_or(usual) };
        let missing = wanted.saturating_sub(text.len());
        out.push_str(&if fill == Fill::Zeros { "0" } else { " " }.repeat(missing));
        out.push_str(&text);
        Some(&letters[letter.len_utf8()..])
    }

    /// A field by its letter.
    fn field(self, letter: char) -> Option<Field> {
        let two = |number: i64| Field::Number(number, 2, Fill::Zeros);
        let blank = |number: i64| Field::Number(number, 2, Fill::Blanks);
        let several = |format: &str| self.format(format, 0).map(Field::Text);
        let (hour, minute) = (self.seconds.rem_euclid(SECONDS) / 3600, self.seconds.rem_euclid(3600) / 60);
        let (month, weekday) = (MONTHS[self.month], DAYS[usize::try_from(self.weekday).ok()?]);
        let half = (hour + 11) % 12 + 1;
        Some(match letter {
            'a' => Field::Text(weekday[..3].to_owned()),
            'A' => Field::Text(weekday.to_owned()),
            'b' | 'h' => Field::Text(month[..3].to_owned()),
            'B' => Field::Text(month.to_owned()),
            'c' => several("%a %b %e %H:%M:%S %Y")?,
            'C' => two(self.year / 100),
            'd' => two(self.day),
            'D' | 'x' => several("%m/%d/%y")?,
            'e' => blank(self.day),
            'f' => Field::Text("000000".to_owned()),
            'F' => several("%Y-%m-%d")?,
            'g' => two(self.iso_week().0.rem_euclid(100)),
            'G' => Field::Number(self.iso_week().0, 1, Fill::Zeros),
            'H' => two(hour),
            'I' => two(half),
            'j' => Field::Number(self.of_year + 1, 3, Fill::Zeros),
            'k' => blank(hour),
            'l' => blank(half),
            'm' => two(self.month as i64 + 1),
            'M' => two(minute),
            'n' => Field::Text("\n".to_owned()),
            'p' => Field::Text(if hour < 12 { "AM" } else { "PM" }.to_owned()),
            'P' => Field::Text(if hour < 12 { "am" } else { "pm" }.to_owned()),
            'r' => several("%I:%M:%S %p")?,
            'R' => several("%H:%M")?,
            's' => Field::Number(self.seconds, 1, Fill::Zeros),
            'S' => two(self.seconds.rem_euclid(60)),
            't' => Field::Text("\t".to_owned()),
            'T' | 'X' => several("%H:%M:%S")?,
            'u' => Field::Number((self.weekday + 6) % 7 + 1, 1, Fill::Zeros),
            'U' => two((self.of_year + 7 - self.weekday) / 7),
            'V' => two(self.iso_week().1),
            'w' => Field::Number(self.weekday, 1, Fill::Zeros),
            'W' => two((self.of_year + 7 - (self.weekday + 6) % 7) / 7),
            'y' => two(self.year.rem_euclid(100)),
            'Y' => Field::Number(self.year, 1, Fill::Zeros),
            'z' | 'Z' => Field::Text(String::new()),
            '%' => Field::Text("%".to_owned()),
            _ => return None,
        })
    }

    /// Year and week of ISO 8601: a week belongs to the year that its Thursday is in.
    fn iso_week(self) -> (i64, i64) {
        let thursday = self.seconds.div_euclid(SECONDS) - (self.weekday + 6) % 7 + 3;
        let of_thursday = Self::since_1970(thursday * SECONDS);
        (of_thursday.year, of_thursday.of_year / 7 + 1)
    }
}

/// Year, month from 0 and day, `days` after 1 January 1970: Howard Hinnant's `civil_from_days`, with eras of 400 years
/// that begin in March.
fn date(days: i64) -> (i64, usize, i64) {
    let shifted = days + 719_468;
    let (era, of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let from_march = (5 * of_year + 2) / 153;
    let month = (from_march + 2) % 12;
    (year + era * 400 + i64::from(month < 2), month as usize, of_year - (153 * from_march + 2) / 5 + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(seconds: i64, format: &str) -> String {
        Time::since_1970(seconds).format(format, 20).unwrap()
    }

    #[test]
    fn dates_are_written_as_in_python() {
        let all = "%A %a %d %-d %e %m %-m %B %b %y %Y";
        for (days, expected) in [
            (0, "Thursday Thu 01 1  1 01 1 January Jan 70 1970"),
            (-1, "Wednesday Wed 31 31 31 12 12 December Dec 69 1969"),
            (11_016, "Tuesday Tue 29 29 29 02 2 February Feb 00 2000"),
            (19_782, "Thursday Thu 29 29 29 02 2 February Feb 24 2024"),
            (20_000, "Friday Fri 04 4  4 10 10 October Oct 24 2024"),
            (47_540, "Sunday Sun 28 28 28 02 2 February Feb 00 2100"),
        ] {
            assert_eq!(written(days * SECONDS, all), expected);
        }
        assert_eq!(written(0, "100 %%, é"), "100 %, é");
    }

    /// The values are what Python 3.11 prints for `datetime.utcfromtimestamp(seconds)` on Linux.
    #[test]
    fn times_are_written_as_in_python() {
        for (seconds, format, expected) in [
            (1_700_000_000, "%Y-%m-%d %H:%M:%S", "2023-11-14 22:13:20"),
            (
                1_700_000_000,
                "%F %T|%c|%x %X|%D %R",
                "2023-11-14 22:13:20|Tue Nov 14 22:13:20 2023|11/14/23 22:13:20|11/14/23 22:13",
            ),
            (1_700_000_000, "%I %l %k %p %P %r", "10 10 22 PM pm 10:13:20 PM"),
            (1_700_000_000, "%j %U %W %w %u %V %G %g %C %s", "318 46 46 2 2 46 2023 23 20 1700000000"),
            (1_609_459_200, "%j %U %W %V %G %-j %_d %-H", "001 00 00 53 2020 1  1 0"),
            (
                1_700_000_000,
                "%^a %#p %^B %5d %_5d %-5d %h|%Z%z|%n%t|%f",
                "TUE pm NOVEMBER 00014    14    14 Nov||\n\t|000000",
            ),
            (1_700_000_000, "%Q %", "%Q %"),
            (1_700_000_000, "%Ey %Od", "23 14"),
        ] {
            assert_eq!(written(seconds, format), expected, "{format}");
        }
        assert_eq!(Time::since_1970(0).format("%99999999999999999999d", 20), None);
        assert_eq!(Time::since_1970(0).format("%21d", 20), None);
    }
}
