//! Fuzzes DNS queries: every answer can be written and read, belongs to its query, and no answer is answered.
#![no_main]

use hickory_proto::op::{Message, MessageType};
use libfuzzer_sys::fuzz_target;
use sallyport_gateway_fuzz::names::answer::{Asked, addresses, other, read};
use sallyport_gateway_fuzz::names::known::Known;
use sallyport_gateway_fuzz::names::synthetic::{Table, is_synthetic};
use std::sync::LazyLock;

static NAMES: LazyLock<Table> = LazyLock::new(|| Table::new("fuzz", 1000));

fuzz_target!(|query: &[u8]| {
    let answer = match read(query) {
        Asked::Nothing => return,
        Asked::Done(reply) => reply,
        Asked::Question {
            mut reply,
            question,
            host,
        } => {
            match &host {
                Some(name) => {
                    // A full table is an answer of its own.
                    let known = Known::Addresses { ttl: u32::MAX };
                    let _full = addresses(&NAMES, name, &known, &question, &mut reply);
                    if let Ok((four, six)) = NAMES.addresses(name) {
                        assert!(is_synthetic(four.into()) && is_synthetic(six.into()));
                        assert_eq!(NAMES.name(four.into()).as_deref(), Some(&**name));
                    }
                }
                None => other(&NAMES, &question, &mut reply),
            }
            reply
        }
    };
    assert!(
        query.get(2).is_none_or(|flags| flags & 0x80 == 0),
        "an answer was answered"
    );
    let Ok(bytes) = answer.to_vec() else { return };
    let again = Message::from_vec(&bytes).expect("what is written can be read");
    assert_eq!(again.metadata.message_type, MessageType::Response);
    assert_eq!(bytes[..2], query[..2], "the answer belongs to another query");
});
