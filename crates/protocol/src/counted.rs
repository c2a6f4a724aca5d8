//! A number with its noun, as sentences have it.

/// A count and what is counted: "1 token", "2 tokens", "3 passes".
///
/// ```
/// # use draftscope_protocol::counted;
/// assert_eq!([0, 1, 2].map(|count| counted(count, "token")), ["0 tokens", "1 token", "2 tokens"]);
/// assert_eq!(counted(2, "pass"), "2 passes");
/// ```
#[must_use]
pub fn counted(count: usize, noun: &str) -> String {
    let ending = match count {
        1 => "",
        _ if noun.ends_with('s') => "es",
        _ => "s",
    };
    format!("{count} {noun}{ending}")
}
