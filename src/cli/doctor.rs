//! Options of `doctor`.

use clap::Args;

use super::attach::AccessArgs;

/// Below the help of `doctor`.
pub(super) const DOCTOR_NOTE: &str = "The exit status is 1 if something will not work. Nothing is downloaded, and only the server of --attach \
    is asked anything. Paste the output of `draftscope doctor --json` into an issue report; it holds no key, but paths of this machine.";

/// Options of `doctor`.
#[derive(Clone, Debug, Args)]
pub struct DoctorArgs {
    /// Write JSON
    #[arg(long)]
    pub json: bool,
    /// Print plain words in place of signs, as in a locale without UTF-8
    #[arg(long)]
    pub ascii: bool,
    /// Check this server, too, such as http://127.0.0.1:8080; no prompt is sent
    #[arg(long, value_name = "URL")]
    pub attach: Option<String>,
    #[command(flatten)]
    pub access: AccessArgs,
}
