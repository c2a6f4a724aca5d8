//! Time: how fast an answer proceeds, how a recording plays, the tour's ticks.

pub(crate) mod pace;
pub(crate) mod pacing;
pub(crate) mod playback;
pub(crate) mod tour;

use self::pace::Pace;
use self::playback::Playback;

/// Time as the user has set it.
///
/// Invariant: no time of day is kept here. The loop sends ticks; `pace` and `playback` say how many there are in a second.
#[derive(Default)]
pub(crate) struct Clock {
    pub(crate) pace: Pace,
    /// The pace at which an answer of the past plays again, once that was asked for.
    pub(crate) replay: Option<Pace>,
    /// The running round's number, and how many steps of its verdicts are shown.
    pub(crate) unveiled: Option<(u32, usize)>,
    /// A recording plays: it takes no requests.
    pub(crate) is_recording: bool,
    pub(crate) playback: Playback,
    /// Time advances by ticks: the past is played, or the engine runs a phase per tick.
    pub(crate) plays: bool,
    /// The engine is paused because the user went back.
    pub(crate) holds: bool,
    /// Ticks of the tour, while it runs.
    pub(crate) tour: Option<usize>,
    /// Ticks while the models load, for the moving bar.
    pub(crate) loading_ticks: usize,
    /// How often another timeline was shown.
    pub(crate) timelines: u64,
}
