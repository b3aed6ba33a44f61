//! The log on standard error: text for people, JSON for programs. One event is one line, whatever stands in it.
use crate::telemetry::{Telemetry, spans};
use tracing::Subscriber;
use tracing::field::Field;
use tracing_subscriber::field::MakeExt;
use tracing_subscriber::filter::{EnvFilter, FilterExt, filter_fn};
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::fmt::format::{Writer, debug_fn};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::{Layer, fmt};

/// In what form events are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// For people at a terminal.
    Text,
    /// For programs.
    Json,
}

/// Writes the events that `filter` lets through. Spans are a collector's, and left out.
pub fn layer<S, W>(filter: EnvFilter, form: Form, writer: W) -> Box<dyn Layer<S> + Send + Sync>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    let events = filter.and(filter_fn(|metadata| !spans::is_one(metadata)));
    match form {
        Form::Text => fmt::layer()
            .with_writer(writer)
            .fmt_fields(debug_fn(write_field).delimited(" "))
            .with_filter(events)
            .boxed(),
        Form::Json => fmt::layer()
            .json()
            .with_writer(writer)
            .with_filter(events)
            .boxed(),
    }
}

/// What the whole process is heard by: the log, and the collector where there is one. Without one no span is made at all: an empty
/// layer in the collector's place would ask for every one.
pub fn subscriber<W>(
    filter: EnvFilter,
    form: Form,
    writer: W,
    telemetry: Option<&Telemetry>,
) -> Box<dyn Subscriber + Send + Sync>
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    let log = tracing_subscriber::registry().with(layer(filter, form, writer));
    match telemetry {
        Some(telemetry) => Box::new(log.with(telemetry.layer())),
        None => Box::new(log),
    }
}

/// A field with its control characters escaped: a line break from outside must not begin a line of its own.
fn write_field(writer: &mut Writer<'_>, field: &Field, value: &dyn std::fmt::Debug) -> std::fmt::Result {
    let mut text = String::new();
    for letter in format!("{value:?}").chars() {
        match letter.is_control() {
            true => text.extend(letter.escape_default()),
            false => text.push(letter),
        }
    }
    match field.name() {
        "message" => writer.write_str(&text),
        name => write!(writer, "{name}={text}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;
    use std::sync::{Arc, Mutex};

    #[derive(Clone, Default)]
    struct Written(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Written {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn no_span_is_made_where_nobody_takes_it_even_if_everything_is_logged() {
        let log = subscriber(EnvFilter::new("trace"), Form::Json, io::sink, None);
        tracing::subscriber::with_default(log, || {
            assert!(spans::exchange("http").is_disabled());
        });
    }

    #[test]
    fn what_comes_from_outside_begins_no_line_and_colours_nothing() {
        for form in [Form::Text, Form::Json] {
            let written = Written::default();
            let sink = written.clone();
            let log = layer(EnvFilter::new("info"), form, move || sink.clone());
            let outside = "a\r\n2026-01-01 INFO forged \u{1b}[31mred\u{85}";
            tracing::subscriber::with_default(tracing_subscriber::registry().with(log), || {
                tracing::info!(outside, shown = %outside, "message {outside}");
            });
            let text = String::from_utf8(written.0.lock().unwrap().clone()).unwrap();
            assert_eq!(text.lines().count(), 1, "{form:?}: {text}");
            assert_eq!(text.matches("forged").count(), 3, "{form:?}: {text}");
            assert!(
                !text.contains('\r') && !text.contains("\u{1b}[31m"),
                "{form:?}: {text:?}"
            );
            // JSON may hold it: no reader of JSON takes it for a line's end.
            assert!(form == Form::Json || !text.contains('\u{85}'), "{text:?}");
        }
    }
}
