//! Reading a conversation: the past, then what comes, without gap or repeat. A slow reader reads on from the store.
use crate::conversation::store::Conversations;
use crate::conversation::{Entry, What};
use crate::store::{Store, StoreError};
use futures_util::stream::{self, BoxStream, StreamExt as _};
use std::collections::VecDeque;
use tokio::sync::watch;

struct Reader {
    run: String,
    store: Store,
    changed: watch::Receiver<u64>,
    /// Last number that the client has.
    last: u64,
    page: VecDeque<Entry>,
    over: bool,
}

impl Conversations {
    /// Entries after a number, until `Ended`. Void attempts are not in it; a `Rewind` is, where the client may have seen one.
    /// Ends early when the store cannot be read or closes: the client comes back with its last number.
    pub fn follow(&self, run: &str, after: u64) -> BoxStream<'static, Entry> {
        let (store, changed) = self.listen(run);
        let reader = Reader {
            run: run.into(),
            store,
            changed,
            last: after,
            page: VecDeque::new(),
            over: false,
        };
        stream::unfold(reader, |mut reader| async move {
            let entry = reader.next().await?;
            Some((entry, reader))
        })
        .boxed()
    }
}

impl Conversations {
    /// What [`Self::follow`] tells of the entries that are there now.
    pub async fn past(&self, run: &str, after: u64) -> Result<Vec<Entry>, StoreError> {
        let (store, _) = self.listen(run);
        let (mut last, mut told) = (after, Vec::new());
        loop {
            let (page, _) = Self::page(&store, run, last).await?;
            if page.is_empty() {
                return Ok(told);
            }
            told.extend(page.into_iter().filter(|entry| pass(entry, &mut last)));
        }
    }
}

/// Whether a client that has everything up to `last` is told of this entry; it has it then.
fn pass(entry: &Entry, last: &mut u64) -> bool {
    let unseen = matches!(entry.what, What::Rewind { from, .. } if from > *last);
    *last = entry.sequence;
    !unseen
}

impl Reader {
    async fn next(&mut self) -> Option<Entry> {
        loop {
            while let Some(entry) = self.page.pop_front() {
                if pass(&entry, &mut self.last) {
                    return Some(entry);
                }
            }
            if self.over || !self.read().await {
                return None;
            }
        }
    }

    /// Reads on, waiting where there is nothing yet. False when there will be nothing.
    async fn read(&mut self) -> bool {
        loop {
            self.changed.borrow_and_update();
            match Conversations::page(&self.store, &self.run, self.last).await {
                Ok((entries, over)) => {
                    self.over = over;
                    if over || !entries.is_empty() {
                        self.page = entries.into();
                        return true;
                    }
                }
                Err(fault) => {
                    tracing::warn!(run = %self.run, %fault, "a reader of the conversation stops");
                    return false;
                }
            }
            if self.changed.changed().await.is_err() {
                return false;
            }
        }
    }
}
