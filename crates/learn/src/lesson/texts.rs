//! The lessons in the binary, as files of TOML.

/// The lessons in the binary, in the order of the list.
pub(super) const BUNDLED: &[(&str, &str)] = &[
    ("positions", include_str!("../../assets/lessons/1-positions.toml")),
    ("cost", include_str!("../../assets/lessons/2-cost.toml")),
    ("round", include_str!("../../assets/lessons/3-round.toml")),
    ("lossless", include_str!("../../assets/lessons/4-lossless.toml")),
    ("sampling", include_str!("../../assets/lessons/5-sampling.toml")),
    ("mtp", include_str!("../../assets/lessons/6-mtp.toml")),
    ("losing", include_str!("../../assets/lessons/7-losing.toml")),
    ("quiz", include_str!("../../assets/lessons/8-quiz.toml")),
];
