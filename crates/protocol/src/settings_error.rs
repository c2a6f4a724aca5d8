//! Settings that are rejected, and the checks that reject them.

/// Longest draft of a round, in tokens. Verification runs one row more.
pub const MAX_DRAFT_LEN: u8 = 15;

/// Checks a range.
///
/// # Errors
/// [`SettingsError::OutOfRange`] when the value lies outside the range, or is NaN.
pub(super) fn within(name: &'static str, value: f64, low: f64, high: f64) -> Result<(), SettingsError> {
    if (low..=high).contains(&value) { Ok(()) } else { Err(SettingsError::OutOfRange { name, value, low, high }) }
}

/// A setting with an invalid value.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum SettingsError {
    /// A number outside its range.
    #[error("{name} is {value}; it must lie between {low} and {high}")]
    OutOfRange {
        /// The setting.
        name: &'static str,
        /// The requested value.
        value: f64,
        /// Smallest value allowed.
        low: f64,
        /// Largest value allowed.
        high: f64,
    },
    /// Text that is not a number of the right type.
    #[error("{name} is '{value}'; it must be a number")]
    NoNumber {
        /// The setting.
        name: &'static str,
        /// The requested text.
        value: String,
    },
    /// A value that this setting does not support.
    #[error("{what} cannot be {value}: {why}")]
    NotHere {
        /// The setting.
        what: &'static str,
        /// The requested value.
        value: &'static str,
        /// The reason.
        why: &'static str,
    },
    /// A name that is not on the list.
    #[error("there is no {what} '{name}'; there are: {known}")]
    UnknownName {
        /// The kind of name.
        what: &'static str,
        /// The requested name.
        name: String,
        /// All valid names, separated by commas.
        known: String,
    },
}

/// Looks a name up in a closed list.
pub fn named<T: Copy>(
    all: &[T],
    name: &str,
    name_of: impl Fn(T) -> &'static str,
    what: &'static str,
) -> Result<T, SettingsError> {
    all.iter().copied().find(|item| name_of(*item) == name).ok_or_else(|| SettingsError::UnknownName {
        what,
        name: name.to_owned(),
        known: all.iter().map(|item| name_of(*item)).collect::<Vec<_>>().join(", "),
    })
}
