//! What a broken variant of the server does wrong: one forbidden behaviour each, and everything else right.
//!
//! Never a combination: whoever tells faults apart must be able to name each alone.

macro_rules! faults {
    ($($(#[doc = $doc:literal])+ $fault:ident = $name:literal,)+) => {
        /// One forbidden behaviour. Each line says what it does and which row or sentence of the boundary page it breaks.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Fault {
            $($(#[doc = $doc])+ $fault,)+
        }

        impl Fault {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$fault),+];

            /// Its name on a command line.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$fault => $name,)+
                }
            }

            /// What it does, in words.
            pub const fn about(self) -> &'static str {
                match self {
                    $(Self::$fault => concat!($($doc),+),)+
                }
            }
        }
    };
}

faults! {
    // ---- what follows a cursor ----
    /// Leaves out the event after the cursor (row 13: "exactly the events after it").
    SilentGap = "silent-gap",
    /// Replays a resumed stream from its beginning (row 13; "replay is strictly after the cursor").
    ReplaysFromStart = "replays-from-start",
    /// Sends the cursor's own event again (row 13; "replay is strictly after the cursor").
    RepeatsCursorEvent = "repeats-cursor-event",
    /// Swaps the two events after the cursor (row 13: "in order").
    Reorders = "reorders",
    /// Numbers the events of a resumed stream from 1 again ("the one forbidden answer").
    RestartsIds = "restarts-ids",
    /// Sends the events of another call of the session as well (row 13; a cursor is into one stream).
    MixesStreams = "mixes-streams",
    /// Replays what is there, and then sends no live event any more (row 13: "then live").
    HangsAfterReplay = "hangs-after-replay",
    /// Loses what was said between replay and live ("the step from replay to live is atomic").
    HandoverGap = "handover-gap",
    /// Sends what was said between replay and live twice ("the step from replay to live is atomic").
    HandoverDuplicates = "handover-duplicates",
    /// Sends a result that is replayed once more under a new id ("two results for one call").
    SecondResult = "second-result",

    // ---- cursors that name nothing here ----
    /// Serves another session's stream to whoever presents its cursor (row 7: "does not verify for this session").
    LeaksForeignStream = "leaks-foreign-stream",
    /// Answers a cursor that it cannot read with a new stream (row 7).
    GarbageCursorNewStream = "garbage-cursor-new-stream",
    /// Takes a cursor beyond the last event for the end of the stream, whatever its tag (rows 7 and 9).
    AcceptsFutureCursor = "accepts-future-cursor",
    /// Takes an empty `Last-Event-ID` for none (row 7).
    AcceptsEmptyCursor = "accepts-empty-cursor",
    /// Takes the first of two `Last-Event-ID` fields (row 7).
    AcceptsDoubledCursor = "accepts-doubled-cursor",
    /// Goes on after a cursor of a former incarnation with the new one's stream (row 8).
    IgnoresIncarnation = "ignores-incarnation",

    // ---- what is no longer held ----
    /// Goes on at the earliest event held, without a word (row 11).
    EvictsSilently = "evicts-silently",
    /// Says `resync` only behind the first event that is left (row 11: "the first event is `resync`").
    ResyncNotFirst = "resync-not-first",
    /// Gives `resync` the id of the cursor that was presented, so that a client which stores it comes back to the same gap ("cannot loop").
    ResyncDoesNotMove = "resync-does-not-move",
    /// Ends a stream whose result is lost with nothing but `resync` ("never end a 200 stream with nothing but `resync`").
    EndsWithResync = "ends-with-resync",
    /// Skips what a slow reader is too late for, without a word ("never a silent skip").
    OverrunsSilently = "overruns-silently",
    /// Keeps the standalone stream's open GET and finished results right, but forgets what it said while nobody listened (row 14).
    ForgetsUnheard = "forgets-unheard",

    // ---- sessions that are over ----
    /// Answers a GET for a dead session with 200 and a new stream (row 6).
    DeadSessionNewStream = "dead-session-new-stream",
    /// Answers a dead session with 400 (row 6: 404).
    DeadSession400 = "dead-session-400",
    /// Answers DELETE with 204, and the session lives on ("204 and the session ends").
    DeletedSessionLives = "deleted-session-lives",
    /// Takes over the session ids of the process before it, without their streams ("a session restored without them is not restored").
    AdoptsAfterRestart = "adopts-after-restart",
    /// Serves a GET that names no session (row 5).
    SessionNotRequired = "session-not-required",

    // ---- calls ----
    /// Does not keep a result that is said while nobody listens ("results outlive progress").
    LosesUnheardResult = "loses-unheard-result",
    /// Cancels a call whose connection drops ("a dropped connection is not a cancellation").
    DisconnectCancels = "disconnect-cancels",
    /// Executes a repost ("never executed again").
    RepostExecutesAgain = "repost-executes-again",
    /// Executes a call again when its stream is resumed ("one call executed twice").
    ResumeExecutesAgain = "resume-executes-again",
    /// Routes answers by JSON-RPC id, so that a second call under an id in flight gets the first one's ("routed by call, never by id").
    RoutesById = "routes-by-id",
    /// Executes a keyed call again ("executed once while the record is held").
    IgnoresIdempotencyKey = "ignores-idempotency-key",

    // ---- ends and takeovers ----
    /// Answers a cursor at the end of a finished stream with a stream that stays open and empty (row 12).
    FinishedStreamHangs = "finished-stream-hangs",
    /// Answers a cursor at the end of a finished stream with a stream that ends at once (row 12).
    FinishedStreamEmpty = "finished-stream-empty",
    /// Keeps a call's stream open after its result ("a stream ends right after it has answered all its calls").
    StaysOpenAfterResult = "stays-open-after-result",
    /// Refuses a GET while an older connection of the stream is open ("no 409").
    RefusesTakeover = "refuses-takeover",
    /// Lets the older connection keep the events ("a newer one takes over from every older connection").
    OldConnectionKeepsEvents = "old-connection-keeps-events",
    /// Writes to one client while everybody else waits ("every core can refuse", and what a thousand connections need).
    StallsNeighbours = "stalls-neighbours",

    // ---- what clients need to come back at all ----
    /// Sends events without ids ("one id names one position").
    NoIds = "no-ids",
    /// Opens streams without an event of an id and empty data ("opening event").
    NoOpeningEvent = "no-opening-event",

    // ---- who may ask ----
    /// Accepts a foreign `Origin` (row 1).
    AcceptsForeignOrigin = "accepts-foreign-origin",
    /// Accepts a foreign `Host` (row 1).
    AcceptsForeignHost = "accepts-foreign-host",
    /// Serves a session to another principal (row 6).
    IgnoresPrincipal = "ignores-principal",
    /// Answers a CORS preflight with 405 ("OPTIONS: CORS preflight").
    NoPreflight = "no-preflight",
    /// Lets answers be cached ("every answer carries `Cache-Control: no-store`").
    Cacheable = "cacheable",
}

impl std::str::FromStr for Fault {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let found = Self::ALL.iter().copied().find(|fault| fault.name() == name);
        found.ok_or_else(|| format!("no fault is called {name}"))
    }
}
