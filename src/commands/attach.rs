//! `draftscope attach`: the live view of a server that somebody else runs.

mod watch;

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use draftscope::attach::{self, API_KEY, AttachConfig, PLAIN_API_KEY, PlainServer, WantedModel};
use draftscope::cli::{AccessArgs, AttachArgs, ConnectArgs, ModelArgs, SampleArgs, SamplingOf};
use draftscope::host::config::UserFiles;
use draftscope::http::{Access, Patience};
use draftscope::protocol::stream::Source;
use draftscope::protocol::{Baseline, EventKind, Grammar, Header, Settings};
use draftscope::session::text::one_line;
use draftscope::tui::TuiOptions;

use super::{chat, run_args, terminal};

/// The variable with the model of our own engine.
const MODEL: &str = "DRAFTSCOPE_MODEL";

/// Why no server can be asked.
const NO_THREAD: &str = "cannot start a thread for the server";

pub(crate) fn run(args: &AttachArgs, files: &UserFiles) -> Result<ExitCode> {
    if let Some(place) = &args.check {
        return super::plugin_check::run(place);
    }
    if args.watch {
        return watch::run(args, &access(&args.connect.access)?, files);
    }
    let [url] = args.urls.as_slice() else { bail!("only --watch takes several servers; name one") };
    let is_live = terminal::can_draw() && !args.per_line;
    let prompts = if is_live { None } else { Some(chat::prompts(args.prompt.as_deref(), args.per_line)?) };
    let recorder = super::trace::recorder(&args.trace)?;
    let model = args.model.clone().map(|name| WantedModel { name, hint_of: None });
    let source = start(url, model, &args.connect, &args.sample, super::grammar::read(&args.grammar)?)?;
    if let Some(prompts) = prompts {
        run_args::report_idle_system(&args.sample);
        return chat::answer_all(source, &args.sample, (prompts, args.per_line), recorder);
    }
    let options = TuiOptions {
        system: args.sample.system.clone(),
        raw: args.sample.raw,
        initial_prompt: args.prompt.clone(),
        pace: args.pace,
        autosave: args.autosave,
        is_recorded: args.trace.trace.is_some(),
        ..terminal::screen(&args.screen, files)
    };
    terminal::show(source, options, recorder)
}

/// The model that `--model` names for a server. The variable names one of our own engine, which a server need not have.
pub(crate) fn named(args: &ModelArgs) -> Option<WantedModel> {
    let path = args.model.as_ref().filter(|path| !path.as_os_str().is_empty())?;
    let is_variable = std::env::var_os(MODEL).is_some_and(|value| value == path.as_os_str());
    Some(WantedModel { name: path.to_string_lossy().into_owned(), hint_of: is_variable.then_some(MODEL) })
}

/// Attaches to a server.
pub(crate) fn start(
    url: &str,
    model: Option<WantedModel>,
    connect: &ConnectArgs,
    sample: &SampleArgs,
    grammar: Option<Grammar>,
) -> Result<Source> {
    let settings = Settings {
        draft_len: 0,
        sampling: run_args::sampling(sample),
        max_tokens: sample.max_tokens,
        baseline: Baseline::Off,
        ..Settings::default()
    };
    settings.validate()?;
    let longest = Duration::from_secs(connect.patience);
    let patience = Patience { answer: longest, silence: attach::PATIENCE.silence.min(longest), ..attach::PATIENCE };
    let config = AttachConfig {
        patience,
        model,
        leaves_sampling: connect.sampling == SamplingOf::Server,
        api: connect.access.api,
        access: access(&connect.access)?,
        plain: plain(connect)?,
        probe: connect.probe,
        socket: connect.socket.clone(),
        grammar,
        ..AttachConfig::new(url, settings)
    };
    attach::spawn(config).context(NO_THREAD)
}

/// What the server at URL is given.
fn access(args: &AccessArgs) -> Result<Access> {
    Ok(Access { headers: headers(("--header", &args.headers), API_KEY)?, ca_file: args.ca_file.clone() })
}

/// Attaches to a server, waits until it is recognised, and leaves it again; returns what it says of itself. No prompt
/// is sent.
pub(crate) fn introduce(url: &str, args: &AccessArgs) -> Result<Header> {
    let settings = Settings { draft_len: 0, baseline: Baseline::Off, ..Settings::default() };
    let config = AttachConfig { api: args.api, access: access(args)?, ..AttachConfig::new(url, settings) };
    let mut source = attach::spawn(config).context(NO_THREAD)?;
    while let Some(event) = source.events.blocking_recv() {
        match event.kind {
            EventKind::Started { header } => return Ok(*header),
            EventKind::Failed { message } => bail!("{}", one_line(&message)),
            _ => {}
        }
    }
    bail!("the server was given up without a reason; please report this")
}

/// The server of `--plain-url`. Credentials of the other one are not sent to it.
fn plain(connect: &ConnectArgs) -> Result<Option<PlainServer>> {
    let Some(url) = connect.plain_url.clone() else { return Ok(None) };
    let headers = headers(("--plain-header", &connect.plain_headers), PLAIN_API_KEY)?;
    Ok(Some(PlainServer { url, access: Access { headers, ca_file: connect.access.ca_file.clone() } }))
}

/// The headers of every request: those that an option asks for, and the API key in this variable.
fn headers((option, asked): (&str, &[String]), key: &str) -> Result<Vec<(String, String)>> {
    let mut headers = Vec::new();
    for header in asked {
        let Some((name, variable)) =
            header.split_once('=').filter(|(name, variable)| is_name(name) && is_name(variable))
        else {
            bail!("{option} is '{header}'; it must be NAME=ENVVAR, such as X-Api-Key=MY_KEY");
        };
        let value = std::env::var(variable)
            .ok()
            .with_context(|| format!("{option} {name}: the environment variable {variable} is not set"))?;
        headers.push((name.to_owned(), checked(name, value)?));
    }
    if let Some(value) = std::env::var(key).ok().filter(|value| !value.is_empty()) {
        headers.push(("Authorization".to_owned(), checked(key, format!("Bearer {value}"))?));
    }
    Ok(headers)
}

fn is_name(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_')
}

/// A value that can stand in a header. The error does not repeat it.
fn checked(name: &str, value: String) -> Result<String> {
    if value.is_empty() || !value.bytes().all(|byte| (b' '..=b'~').contains(&byte)) {
        bail!("the value for {name} is empty or holds characters that no header may hold");
    }
    Ok(value)
}
