//! Every limit of the data path in one place, with its default and what happens beyond it.
use std::time::Duration;

/// Limits on time, size and number. Each phase has its own, so that a slow peer is ended for the phase in which it is slow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// From accepting a connection to its first bytes (10 s). Beyond it: closed; recorded where the name was refused.
    pub first_bytes: Duration,
    /// From the first bytes to a finished TLS handshake with the machine (10 s). Beyond it: closed and recorded.
    pub handshake: Duration,
    /// For one whole request head (20 s). Beyond it: closed and recorded.
    pub head: Duration,
    /// Between two requests on a kept connection (120 s). Beyond it: closed.
    pub idle: Duration,
    /// For connecting to one upstream address (10 s). Beyond it: the next address, then 504 `connection_timeout`.
    pub upstream_connect: Duration,
    /// For the TLS handshake with the upstream (10 s). Beyond it: 504 `connection_timeout`.
    pub upstream_handshake: Duration,
    /// From CONNECT to the parent proxy's answer: it dials meanwhile (30 s). Beyond it: 504 `proxy_internal_error`.
    pub parent_answer: Duration,
    /// Bytes of the parent proxy's answer to CONNECT (16 KiB). Beyond it: 502 `proxy_internal_error`.
    pub parent_head_bytes: usize,
    /// From the request's last byte to the answer's head (300 s: models think). Beyond it: 504 `http_response_timeout`.
    pub upstream_first_byte: Duration,
    /// Between two pieces of an answer's body (300 s). Beyond it: the answer ends torn, `upstream idle`.
    pub body_idle: Duration,
    /// Between two pieces of a request's body (60 s). Beyond it: the request ends torn.
    pub request_body_idle: Duration,
    /// How long `Expect: 100-continue` may wait for the upstream's word before the body is taken anyway (2 s).
    pub expect_continue: Duration,
    /// A pooled upstream connection without use (60 s). Beyond it: closed.
    pub pool_idle: Duration,
    /// A machine that does not read what it is sent, at the socket (120 s). Beyond it: cut.
    pub unread: Duration,
    /// Idle upstream connections kept for one destination of one session (64: fewer than a client has at work would be opened
    /// anew all the time). Beyond it: the oldest is closed.
    pub pool_per_destination: usize,
    /// Bytes of a request head (64 KiB). Beyond it: 431.
    pub head_bytes: usize,
    /// Header fields of a request head (128). Beyond it: 431.
    pub headers: usize,
    /// Concurrent HTTP/2 streams on one connection (128). Beyond it: the client waits.
    pub streams: u32,
    /// Bytes that one HTTP/2 stream may send before they are read (1 MiB). Beyond it: the client waits.
    pub stream_window: u32,
    /// The same for all streams of one connection together (1 MiB). Beyond it: the client waits.
    pub connection_window: u32,
    /// Connections of one session (1024). Beyond it: closed at once.
    pub connections: usize,
    /// Steps of handshakes that are done at once, whoever wants them (half of the processors, at least 1); sessions take turns. Beyond
    /// it: they wait.
    pub handshakes_at_once: usize,
    /// TLS handshakes with machines of one session that have begun and not ended (64). Beyond it: they wait, for as long as
    /// `handshake`; then closed and recorded.
    pub handshakes: usize,
    /// Connections to the explicit proxy from one address that have not said whose they are (1024). Beyond it: closed at once.
    pub strangers: usize,
    /// Connections to the explicit proxy, whoever makes them (16384). Beyond it: closed at once.
    pub proxy_connections: usize,
    /// Refs that one push may change where a rule looks at them (4096). Beyond it: refused, nothing is sent on.
    pub push_refs: usize,
    /// Bytes of a push read before it is decided, held in memory meanwhile (4 MiB). Commands beyond it: refused; a pack
    /// beyond it shows no more, so that what it has not shown counts as forced.
    pub push_bytes: usize,
    /// Bytes of a body that is covered by an AWS signature without standing in its head, held in memory while it is signed
    /// anew (16 MiB). Beyond it: refused, nothing is sent on.
    pub signed_body_bytes: usize,
    /// Bytes of an answer in which a log-in gives a value, coded and decoded, held in memory while it is looked into (1 MiB).
    /// Beyond it: 502, nothing of it passes.
    pub log_in_answer_bytes: usize,
    /// Bytes of one chunk that carries an AWS signature of its own, held in memory while it is signed anew (4 MiB). Beyond
    /// it: the request ends torn.
    pub signed_chunk_bytes: usize,
    /// Bytes inflated of what one push brings, to look for values in it (512 MiB). Beyond it: passes unlooked at, with a remark in the
    /// record.
    pub push_inflated: u64,
    /// Between two pieces of a request's body whose answer is given already, so that its client gets to read the answer
    /// (2 s, and ten times that in all). Beyond it: the connection ends, an HTTP/2 stream is reset.
    pub linger: Duration,
    /// Bytes of such a body (64 MiB). Beyond it: as for `linger`.
    pub linger_bytes: u64,
    /// Connections to the tunnel's listener, whoever makes them (4096). Beyond it: closed at once.
    pub tunnel_connections: usize,
    /// Tunnels of one session, open at a time (8: one is used, others are dead and not noticed yet). Beyond it: 429.
    pub tunnels: usize,
    /// Connections carried by one tunnel at a time (1000). Beyond it: the machine waits.
    pub tunnel_streams: u32,
    /// Bytes that all connections of one tunnel may send before they are read (16 MiB: 16 that stall hold up no other).
    /// Beyond it: the machine waits.
    pub tunnel_window: u32,
    /// Names for which one session holds synthetic addresses (32768). Beyond it: SERVFAIL.
    pub names: usize,
    /// For one look-up of a name that a machine asked for (4 s: stub resolvers give up at 5). Beyond it: SERVFAIL.
    pub lookup: Duration,
    /// Queries of one DNS socket that are answered at a time (256). Beyond it: SERVFAIL.
    pub lookups: usize,
    /// Refused names of one session that have a record each (256). Beyond it: one record that says so.
    pub refused_names: usize,
    /// For the log-in of a protocol that has one, on each side (30 s). Beyond it: an error in the protocol's words, recorded.
    pub log_in: Duration,
    /// How long a client may take to be told why its connection ends (5 s). Beyond it: cut.
    pub farewell: Duration,
    /// Bytes neither way on a tunnel, a database connection or a WebSocket (1 h). Beyond it: closed, a WebSocket with 1001.
    pub tunnel_idle: Duration,
    /// Bytes of a request's body, decoded, in which secrets are looked for that the gateway does not know (4 MiB), where a policy says
    /// so. Beyond it: not looked at.
    pub unknown_secrets: usize,
    /// Bytes of one WebSocket message, inflated (64 MiB). Beyond it: closed with 1009.
    pub websocket_message: u64,
    /// How long one side of a WebSocket may take to answer the other's close, and a client to read its last words (5 s). Beyond
    /// it: closed.
    pub websocket_close: Duration,
    /// From the first bytes of ssh to a log-in, and as long for each step of the gateway's own log-in upstream (60 s). Beyond
    /// it: told, closed and recorded.
    pub ssh_log_in: Duration,
    /// How long a log-in over ssh that is refused takes at least (100 ms), so that placeholders are not guessed.
    pub ssh_rejection: Duration,
    /// How long what may be the beginning of a value is held back over ssh while nothing follows it (20 ms). Beyond it: let go,
    /// since terminals and protocols wait for what is short.
    pub ssh_held: Duration,
    /// How long an ssh client may take for what the gateway itself tells it, and to leave when told why (2 s). Beyond it: cut.
    pub ssh_farewell: Duration,
    /// Log-ins that one ssh connection may fail (10). Beyond it: disconnected.
    pub ssh_tries: usize,
    /// Channels open at once on one ssh connection (64). Beyond it: the channel is refused.
    pub ssh_channels: usize,
    /// For one call to a source that secrets are fetched from, as Vault (10 s). Beyond it: tried again later.
    pub secret_call: Duration,
    /// How long the opening of a session, or a change of its policy, waits for secrets that are being fetched (5 s). Beyond it: open
    /// without them, with a warning; they come when they are there.
    pub secret_wait: Duration,
    /// Before such a fetch is tried a second time (500 ms); doubled from try to try up to `secret_retry_longest`, with jitter.
    pub secret_retry: Duration,
    /// Between two tries at the longest (30 s).
    pub secret_retry_longest: Duration,
    /// Between two looks whether a fetched secret has changed that has neither lease nor `ttl` (60 s).
    pub secret_look: Duration,
    /// How long a value is still taken out of answers after another took its place (10 min).
    pub secret_grace: Duration,
    /// Values of one credential that are taken out of answers besides the one in force (32). Beyond it: the oldest is forgotten.
    pub old_values: usize,
    /// For one batch of spans to reach the collector, and for the last ones at the end (5 s). Beyond it: those spans are lost.
    pub spans: Duration,
    /// How long open exchanges may go on after the gateway was told to stop (10 s). Beyond it: cut.
    pub drain: Duration,
    /// How much longer a transaction of a database may last then (4 s). Beyond it: ended between two messages.
    pub transaction: Duration,
}

impl Limits {
    /// The limits of a connection that carries others, which may be idle for as long as a tunnel may.
    pub fn of_tunnel(&self) -> Self {
        Self {
            streams: self.tunnel_streams,
            connection_window: self.tunnel_window,
            idle: self.tunnel_idle,
            ..self.clone()
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            first_bytes: Duration::from_secs(10),
            handshake: Duration::from_secs(10),
            head: Duration::from_secs(20),
            idle: Duration::from_secs(120),
            upstream_connect: Duration::from_secs(10),
            upstream_handshake: Duration::from_secs(10),
            parent_answer: Duration::from_secs(30),
            parent_head_bytes: 16 * 1024,
            upstream_first_byte: Duration::from_secs(300),
            body_idle: Duration::from_secs(300),
            request_body_idle: Duration::from_secs(60),
            expect_continue: Duration::from_secs(2),
            pool_idle: Duration::from_secs(60),
            unread: Duration::from_secs(120),
            pool_per_destination: 64,
            head_bytes: 64 * 1024,
            headers: 128,
            streams: 128,
            stream_window: 1 << 20,
            connection_window: 1 << 20,
            connections: 1024,
            handshakes_at_once: std::thread::available_parallelism().map_or(1, |all| (all.get() / 2).max(1)),
            handshakes: 64,
            strangers: 1024,
            proxy_connections: 16_384,
            push_refs: 4096,
            push_bytes: 4 << 20,
            signed_body_bytes: 16 << 20,
            signed_chunk_bytes: 4 << 20,
            push_inflated: 512 << 20,
            log_in_answer_bytes: 1 << 20,
            linger: Duration::from_secs(2),
            linger_bytes: 64 << 20,
            tunnel_connections: 4096,
            tunnels: 8,
            tunnel_streams: 1000,
            tunnel_window: 16 << 20,
            names: 32_768,
            lookup: Duration::from_secs(4),
            lookups: 256,
            refused_names: 256,
            log_in: Duration::from_secs(30),
            farewell: Duration::from_secs(5),
            tunnel_idle: Duration::from_secs(3600),
            unknown_secrets: 4 << 20,
            websocket_message: 64 << 20,
            websocket_close: Duration::from_secs(5),
            ssh_log_in: Duration::from_secs(60),
            ssh_rejection: Duration::from_millis(100),
            ssh_held: Duration::from_millis(20),
            ssh_farewell: Duration::from_secs(2),
            ssh_tries: 10,
            ssh_channels: 64,
            secret_call: Duration::from_secs(10),
            secret_wait: Duration::from_secs(5),
            secret_retry: Duration::from_millis(500),
            secret_retry_longest: Duration::from_secs(30),
            secret_look: Duration::from_secs(60),
            secret_grace: Duration::from_secs(600),
            old_values: 32,
            spans: Duration::from_secs(5),
            drain: Duration::from_secs(10),
            transaction: Duration::from_secs(4),
        }
    }
}
