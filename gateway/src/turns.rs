//! Turns at what is expensive: the cryptography of handshakes, so that nobody's connections take the processor from the others.
//!
//! Each step of a handshake (a leaf and a signature, the check of a chain) takes a turn. Few run at once; the others wait, and
//! each session is served once before any is served again, however many of its steps wait. Whoever has not said yet who it is comes
//! in a second circle, by address, and that whole circle has every other turn at most. A turn is passed on only after everything else that
//! was ready has run, so that requests on open connections go before handshakes. Alone, a session may use it all.
use std::collections::{HashMap, VecDeque};
use std::hash::Hash;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use tokio::runtime::Handle;
use tokio::sync::oneshot::{Receiver, Sender, channel};

/// Whose turn it is.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Owner {
    /// A session's.
    Session(Arc<str>),
    /// Somebody's who has not said yet who it is; by address or network, where there is one.
    Stranger(Option<IpAddr>),
}

/// Everybody's turns.
#[derive(Debug)]
pub struct Turns(Mutex<State>);

#[derive(Debug)]
struct State {
    free: usize,
    sessions: Circle<Arc<str>>,
    strangers: Circle<Option<IpAddr>>,
    /// Whether strangers came first the last time.
    strangers_first: bool,
}

impl State {
    fn next(&mut self) -> Option<Sender<Turn>> {
        self.strangers_first = !self.strangers_first;
        match self.strangers_first {
            true => self.strangers.next().or_else(|| self.sessions.next()),
            false => self.sessions.next().or_else(|| self.strangers.next()),
        }
    }
}

/// Who waits, each served once before any is served again.
#[derive(Debug)]
struct Circle<K> {
    waiting: HashMap<K, VecDeque<Sender<Turn>>>,
    order: VecDeque<K>,
}

impl<K> Default for Circle<K> {
    fn default() -> Self {
        Self {
            waiting: HashMap::new(),
            order: VecDeque::new(),
        }
    }
}

impl<K: Clone + Eq + Hash> Circle<K> {
    fn wait(&mut self, key: &K) -> Receiver<Turn> {
        let (sender, receiver) = channel();
        if !self.waiting.contains_key(key) {
            self.order.push_back(key.clone());
        }
        self.waiting.entry(key.clone()).or_default().push_back(sender);
        receiver
    }

    fn next(&mut self) -> Option<Sender<Turn>> {
        let key = self.order.pop_front()?;
        let queue = self.waiting.get_mut(&key)?;
        let first = queue.pop_front();
        match queue.is_empty() {
            true => drop(self.waiting.remove(&key)),
            false => self.order.push_back(key),
        }
        first
    }
}

/// The right to one step. Passed on when dropped.
#[derive(Debug)]
struct Turn(Option<Arc<Turns>>);

impl Drop for Turn {
    fn drop(&mut self) {
        let Some(turns) = self.0.take() else {
            return;
        };
        match Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn(async move {
                // Behind everything that is ready now.
                tokio::task::yield_now().await;
                turns.pass_on();
            })),
            // The runtime is gone, and with it whoever waits.
            Err(_) => turns.pass_on(),
        }
    }
}

impl Turns {
    /// So many at once.
    pub fn new(at_once: usize) -> Arc<Self> {
        Arc::new(Self(Mutex::new(State {
            free: at_once.max(1),
            sessions: Circle::default(),
            strangers: Circle::default(),
            strangers_first: false,
        })))
    }

    /// Does work whose every step takes one of the owner's turns. Cancel safe where the work is.
    pub async fn take<F: Future>(self: &Arc<Self>, owner: Owner, work: F) -> F::Output {
        let mut work = Box::pin(work);
        let mut waiting = None;
        std::future::poll_fn(move |context| {
            let _turn = ready!(self.poll_turn(&owner, &mut waiting, context));
            work.as_mut().poll(context)
        })
        .await
    }

    fn poll_turn(
        self: &Arc<Self>,
        owner: &Owner,
        waiting: &mut Option<Receiver<Turn>>,
        context: &mut Context<'_>,
    ) -> Poll<Turn> {
        loop {
            match waiting {
                None => match self.enter(owner) {
                    Ok(turn) => return Poll::Ready(turn),
                    Err(receiver) => *waiting = Some(receiver),
                },
                Some(receiver) => {
                    let came = ready!(Pin::new(receiver).poll(context));
                    *waiting = None;
                    if let Ok(turn) = came {
                        return Poll::Ready(turn);
                    }
                }
            }
        }
    }

    /// A turn at once, or the place where it will come.
    fn enter(self: &Arc<Self>, owner: &Owner) -> Result<Turn, Receiver<Turn>> {
        let mut state = self.state();
        if state.free > 0 {
            state.free -= 1;
            return Ok(Turn(Some(self.clone())));
        }
        Err(match owner {
            Owner::Session(session) => state.sessions.wait(session),
            Owner::Stranger(address) => state.strangers.wait(address),
        })
    }

    /// Gives a turn to the next one that still waits.
    fn pass_on(self: &Arc<Self>) {
        loop {
            let mut state = self.state();
            let Some(next) = state.next() else {
                state.free += 1;
                return;
            };
            drop(state);
            match next.send(Turn(Some(self.clone()))) {
                Ok(()) => return,
                // It waits no more: the turn goes to another.
                Err(mut turn) => turn.0 = None,
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;
    use tokio::task::yield_now;

    /// Steps in the order in which they were done, by whom.
    type Done = Arc<Mutex<Vec<String>>>;

    fn session(name: &str) -> Owner {
        Owner::Session(name.into())
    }

    fn stranger(last: u8) -> Owner {
        Owner::Stranger(Some(Ipv4Addr::new(192, 0, 2, last).into()))
    }

    fn spawn(turns: &Arc<Turns>, done: &Done, owner: Owner, name: &str) -> tokio::task::JoinHandle<()> {
        let (turns, done, name) = (turns.clone(), done.clone(), name.to_owned());
        tokio::spawn(async move { turns.take(owner, async { done.lock().unwrap().push(name) }).await })
    }

    #[tokio::test]
    async fn who_comes_late_waits_for_one_step_of_each_other_and_not_for_all_that_they_want() {
        let (turns, done) = (Turns::new(1), Done::default());
        let mut tasks = Vec::new();
        for _ in 0..100 {
            tasks.push(spawn(&turns, &done, session("greedy"), "greedy"));
            tasks.push(spawn(&turns, &done, session("other"), "other"));
        }
        yield_now().await;
        let late = spawn(&turns, &done, session("late"), "late");
        late.await.unwrap();
        let before = done.lock().unwrap().len() - 1;
        assert!(before <= 4, "{before} steps went before");
        for task in tasks {
            task.await.unwrap();
        }
        assert_eq!(done.lock().unwrap().len(), 201);
    }

    #[tokio::test]
    async fn all_strangers_together_have_every_other_turn_and_share_it_by_address() {
        let (turns, done) = (Turns::new(1), Done::default());
        let hold = turns.enter(&session("holder")).unwrap();
        let mut tasks = Vec::new();
        for address in 1..=50 {
            tasks.push(spawn(&turns, &done, stranger(address), "stranger"));
        }
        for _ in 0..3 {
            tasks.push(spawn(&turns, &done, session("known"), "known"));
        }
        yield_now().await;
        drop(hold);
        for task in tasks {
            task.await.unwrap();
        }
        let done = done.lock().unwrap();
        let known: Vec<usize> = (0..done.len()).filter(|at| done[*at] == "known").collect();
        assert!(known.iter().all(|at| *at <= 6), "{known:?}");
    }

    #[tokio::test]
    async fn a_turn_of_who_waits_no_more_goes_to_another() {
        let (turns, done) = (Turns::new(1), Done::default());
        let hold = turns.enter(&session("holder")).unwrap();
        let gone = spawn(&turns, &done, session("gone"), "gone");
        let stays = spawn(&turns, &done, session("stays"), "stays");
        yield_now().await;
        gone.abort();
        assert!(gone.await.unwrap_err().is_cancelled());
        drop(hold);
        stays.await.unwrap();
        assert_eq!(*done.lock().unwrap(), ["stays"]);
        yield_now().await;
        yield_now().await;
        assert!(turns.enter(&session("any")).is_ok(), "no turn is lost");
    }

    #[tokio::test]
    async fn work_of_many_steps_is_done_to_its_end() {
        let turns = Turns::new(2);
        let work = |turns: Arc<Turns>| async move {
            let steps = async {
                for _ in 0..20 {
                    yield_now().await;
                }
                20
            };
            turns.take(session("one"), steps).await
        };
        let tasks: Vec<_> = (0..10).map(|_| tokio::spawn(work(turns.clone()))).collect();
        for task in tasks {
            assert_eq!(task.await.unwrap(), 20);
        }
    }
}
