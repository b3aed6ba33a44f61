//! Numbering, acknowledgement and resending in one direction pair. Pure: who owns the bytes is not its business.
use super::{Frame, Head, WireError};
use bytes::Bytes;
use std::collections::VecDeque;

/// What to do with a received frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Receipt {
    /// New and next in order: deliver it.
    Deliver,
    /// Known already, or a bare acknowledgement: nothing to deliver.
    Nothing,
}

/// The state of one end: outlives connections, so that a cut loses and doubles nothing.
#[derive(Debug)]
pub struct Link<M> {
    sent: u64,
    received: u64,
    kept: VecDeque<(u64, M, Bytes)>,
    kept_bytes: usize,
}

impl<M> Default for Link<M> {
    fn default() -> Self {
        Link {
            sent: 0,
            received: 0,
            kept: VecDeque::new(),
            kept_bytes: 0,
        }
    }
}

impl<M: Clone> Link<M> {
    /// Numbers a message and keeps it until it is acknowledged.
    pub fn send(&mut self, message: M, body: Bytes) {
        self.sent += 1;
        self.kept_bytes += body.len();
        self.kept.push_back((self.sent, message, body));
    }

    /// The first kept frame after number `after`, ready for the wire.
    pub fn next_after(&self, after: u64) -> Option<Frame<M>> {
        let first = self.kept.front()?.0;
        let skip = usize::try_from((after + 1).saturating_sub(first)).unwrap_or(usize::MAX);
        let (sequence, message, body) = self.kept.get(skip)?;
        let head = Head {
            sequence: *sequence,
            acknowledged: self.received,
            message: Some(message.clone()),
        };
        Some(Frame {
            head,
            body: body.clone(),
        })
    }

    /// A frame outside the numbering: `Hello`, or an acknowledgement without a message.
    pub fn unnumbered(&self, message: Option<M>) -> Frame<M> {
        Frame {
            head: Head {
                sequence: 0,
                acknowledged: self.received,
                message,
            },
            body: Bytes::new(),
        }
    }

    /// Takes note of a received frame's numbers.
    ///
    /// # Errors
    /// `Gap` or `BadAcknowledgement` if the peer's numbers make no sense; the connection must be closed.
    pub fn receive(&mut self, sequence: u64, acknowledged: u64) -> Result<Receipt, WireError> {
        self.acknowledge(acknowledged)?;
        if sequence <= self.received {
            return Ok(Receipt::Nothing);
        }
        if sequence != self.received + 1 {
            return Err(WireError::Gap {
                got: sequence,
                expected: self.received + 1,
            });
        }
        self.received = sequence;
        Ok(Receipt::Deliver)
    }

    /// Drops what the peer has.
    ///
    /// # Errors
    /// `BadAcknowledgement` if it claims to have what was never sent.
    pub fn acknowledge(&mut self, acknowledged: u64) -> Result<(), WireError> {
        if acknowledged > self.sent {
            return Err(WireError::BadAcknowledgement {
                got: acknowledged,
                sent: self.sent,
            });
        }
        while self.kept.front().is_some_and(|(n, ..)| *n <= acknowledged) {
            if let Some((_, _, body)) = self.kept.pop_front() {
                self.kept_bytes -= body.len();
            }
        }
        Ok(())
    }

    /// Highest number received without gap.
    pub fn received(&self) -> u64 {
        self.received
    }

    /// Body bytes kept for resending.
    pub fn kept_bytes(&self) -> usize {
        self.kept_bytes
    }

    /// Frames kept for resending.
    pub fn kept_frames(&self) -> usize {
        self.kept.len()
    }
}

#[cfg(test)]
mod tests {
    use super::{Link, Receipt};
    use crate::wire::WireError;
    use bytes::Bytes;
    use proptest::prelude::*;

    #[test]
    fn a_gap_and_an_acknowledgement_from_the_future_are_errors() {
        let mut link: Link<u32> = Link::default();
        assert_eq!(link.receive(2, 0), Err(WireError::Gap { got: 2, expected: 1 }));
        assert_eq!(
            link.receive(1, 1),
            Err(WireError::BadAcknowledgement { got: 1, sent: 0 })
        );
    }

    #[test]
    fn what_is_acknowledged_is_not_kept() {
        let mut link: Link<u32> = Link::default();
        link.send(7, Bytes::from_static(b"abc"));
        link.send(8, Bytes::from_static(b"d"));
        link.acknowledge(1).unwrap();
        assert_eq!((link.kept_frames(), link.kept_bytes()), (1, 1));
        assert_eq!(link.next_after(0).unwrap().head.message, Some(8));
    }

    proptest! {
        /// Messages are sent while connections are cut at any frame; acknowledgements may be lost with them.
        #[test]
        fn any_cut_of_the_connection_delivers_each_message_once_in_order(
            messages in 1u32..60,
            cuts in proptest::collection::vec((0usize..20, any::<bool>()), 1..30),
        ) {
            let mut here: Link<u32> = Link::default();
            let mut there: Link<u32> = Link::default();
            for n in 0..messages {
                here.send(n, Bytes::new());
            }
            let mut seen = Vec::new();
            let last = (usize::MAX, true);
            for (frames, acks_arrive) in cuts.into_iter().chain([last]) {
                here.acknowledge(there.received()).unwrap();
                let mut written = there.received();
                for _ in 0..frames {
                    let Some(frame) = here.next_after(written) else { break };
                    written = frame.head.sequence;
                    if there.receive(frame.head.sequence, frame.head.acknowledged).unwrap() == Receipt::Deliver {
                        seen.push(frame.head.message.unwrap());
                    }
                    if acks_arrive {
                        let ack = there.unnumbered(None);
                        here.receive(ack.head.sequence, ack.head.acknowledged).unwrap();
                    }
                }
            }
            prop_assert_eq!(seen, (0..messages).collect::<Vec<_>>());
            prop_assert_eq!(here.kept_frames(), 0);
        }

        #[test]
        fn frames_sent_twice_are_delivered_once(repeat in 1usize..5) {
            let mut there: Link<u32> = Link::default();
            let mut delivered = 0;
            for _ in 0..repeat {
                for n in 1..=3 {
                    let expected_new = n > there.received();
                    let receipt = there.receive(n, 0).unwrap();
                    prop_assert_eq!(receipt == Receipt::Deliver, expected_new);
                    delivered += usize::from(receipt == Receipt::Deliver);
                }
            }
            prop_assert_eq!(delivered, 3);
        }
    }
}
