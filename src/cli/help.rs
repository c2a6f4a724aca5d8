//! What `-h`, `--help` and `--help-all` show.
//!
//! `-h` shows the main options, `--help` all but those for experts, `--help-all` and the manual page every option. The
//! tables here name options of the groups that commands share; the options of a single command are always shown.

use std::ffi::OsStr;

/// Options of `-h`, by their ids.
const MAIN: &[&str] = &["model", "k", "verify", "drafter", "temperature", "max_tokens", "trace", "prompt", "split"];

/// Options that only `--help-all` shows, by their ids.
const EXPERT: &[&str] = &[
    "dtype",
    "backend",
    "adapter",
    "threads",
    "raw",
    "special_tokens",
    "rollback",
    "draft_vocab",
    "vocab_method",
    "tree",
    "draft_pick",
    "p_min",
    "ngram_min",
    "ngram_max",
    "exit_layers",
    "dial",
    "mtp",
    "mtp_spec",
    "epsilon",
    "delta",
    "lenient_top_k",
    "threshold",
    "confidence",
    "min_p",
    "regex",
    "grammar",
    "trace_text",
];

/// How much of the command line the help shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detail {
    /// The main options.
    Main,
    /// All options but those for experts.
    Usual,
    /// Every option.
    All,
}

impl Detail {
    /// The most that these arguments ask for; [`Detail::Usual`] if they ask for no help.
    pub fn of<T: AsRef<OsStr>>(args: impl IntoIterator<Item = T>) -> Self {
        let (mut has_main, mut has_usual) = (false, false);
        for arg in args {
            match arg.as_ref().to_str() {
                Some("--help-all") => return Self::All,
                Some("--help") => has_usual = true,
                Some("-h") => has_main = true,
                Some("--") => break,
                _ => {}
            }
        }
        if has_main && !has_usual { Self::Main } else { Self::Usual }
    }

    fn hides(self, arg: &clap::Arg) -> bool {
        let id = arg.get_id().as_str();
        let is_shared = arg.get_help_heading().is_some();
        let is_expert = is_shared && EXPERT.contains(&id);
        match self {
            Self::Main => is_expert || (is_shared && !MAIN.contains(&id)),
            Self::Usual => is_expert,
            Self::All => false,
        }
    }
}

/// The command, with the options that `detail` leaves out hidden from its help and from that of its subcommands.
#[must_use]
pub fn with_detail(command: clap::Command, detail: Detail) -> clap::Command {
    let command = command.mut_args(|arg| {
        let is_hidden = detail.hides(&arg);
        arg.hide_short_help(is_hidden).hide_long_help(is_hidden)
    });
    command.mut_subcommands(|sub| with_detail(sub, detail))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::cli::Cli;

    #[test]
    fn the_tables_name_options_that_exist_and_share_none() {
        let command = Cli::command();
        for id in MAIN.iter().chain(EXPERT) {
            let arg = command.get_arguments().find(|arg| arg.get_id() == id);
            assert!(arg.is_some_and(|arg| arg.get_help_heading().is_some()), "{id}");
        }
        assert!(MAIN.iter().all(|id| !EXPERT.contains(id)));
    }

    #[test]
    fn the_arguments_before_two_hyphens_choose_the_detail() {
        assert_eq!(Detail::of(["draftscope", "run", "-h"]), Detail::Main);
        assert_eq!(Detail::of(["draftscope", "-h", "--help"]), Detail::Usual);
        assert_eq!(Detail::of(["draftscope", "--help", "--help-all"]), Detail::All);
        assert_eq!(Detail::of(["draftscope", "run", "--", "--help-all"]), Detail::Usual);
    }

    #[test]
    fn options_of_a_single_command_are_always_shown() {
        let command = with_detail(Cli::command(), Detail::Main);
        let train = command.find_subcommand("train").unwrap();
        assert!(
            train.get_arguments().all(|arg| !arg.is_hide_short_help_set()),
            "--threads of train is no expert option"
        );
        let run = command.find_subcommand("run").unwrap();
        let hidden = |id: &str| run.get_arguments().find(|arg| arg.get_id() == id).unwrap().is_hide_short_help_set();
        assert!(hidden("threads") && hidden("top_p") && !hidden("output") && !hidden("model"));
    }
}
