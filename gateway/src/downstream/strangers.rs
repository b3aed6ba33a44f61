//! Those who have not said yet who they are: so many connections to the explicit proxy from one address at a time.
use crate::turns::Owner;
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Counts them by address; one of IPv6 counts as its network of 64 bits, which one host can have for itself.
#[derive(Debug)]
pub struct Strangers {
    counts: Mutex<HashMap<IpAddr, usize>>,
    most: usize,
}

/// A place among them, until it is known whose the connection is, or until it is dropped.
#[derive(Debug)]
pub struct Place {
    strangers: Arc<Strangers>,
    address: IpAddr,
    left: AtomicBool,
}

impl Strangers {
    /// So many from one address.
    pub fn new(most: usize) -> Arc<Self> {
        Arc::new(Self {
            counts: Mutex::default(),
            most,
        })
    }

    /// A place for a connection from there, or none where there are too many.
    pub fn admit(self: &Arc<Self>, address: IpAddr) -> Option<Place> {
        let address = network(address);
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let count = counts.entry(address).or_default();
        if *count >= self.most {
            return None;
        }
        *count += 1;
        Some(Place {
            strangers: self.clone(),
            address,
            left: AtomicBool::new(false),
        })
    }

    fn leave(&self, address: IpAddr) {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = counts.get_mut(&address) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&address);
            }
        }
    }
}

impl Place {
    /// It is known now whose the connection is.
    pub fn leave(&self) {
        if !self.left.swap(true, Ordering::Relaxed) {
            self.strangers.leave(self.address);
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.leave();
    }
}

/// Whose turn the handshake of a stranger is: those whom [`Strangers`] counts as one share theirs too.
pub(super) fn turn(client: Option<SocketAddr>) -> Owner {
    Owner::Stranger(client.map(|client| network(client.ip())))
}

/// What strangers are told apart by.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        address @ IpAddr::V4(_) => address,
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            IpAddr::from([a, b, c, d, 0, 0, 0, 0])
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_its_own_places_and_gets_them_back_once() {
        let strangers = Strangers::new(2);
        let (here, there): (IpAddr, IpAddr) = ("192.0.2.1".parse().unwrap(), "192.0.2.2".parse().unwrap());
        let first = strangers.admit(here).unwrap();
        let _second = strangers.admit(here).unwrap();
        assert!(strangers.admit(here).is_none());
        assert!(strangers.admit(there).is_some());
        first.leave();
        let _third = strangers.admit(here).unwrap();
        drop(first);
        assert!(strangers.admit(here).is_none(), "a place is given back once");
    }

    #[test]
    fn one_network_of_ipv6_is_one_address() {
        let strangers = Strangers::new(1);
        let _one = strangers.admit("2001:db8::1".parse().unwrap()).unwrap();
        assert!(strangers.admit("2001:db8::2:3:4".parse().unwrap()).is_none());
        assert!(strangers.admit("2001:db8:0:1::1".parse().unwrap()).is_some());
    }

    #[test]
    fn hosts_of_ipv4_are_told_apart_where_a_socket_of_ipv6_hears_them_too() {
        let strangers = Strangers::new(1);
        let _one = strangers.admit("::ffff:192.0.2.1".parse().unwrap()).unwrap();
        assert!(strangers.admit("::ffff:192.0.2.2".parse().unwrap()).is_some());
        assert!(strangers.admit("192.0.2.1".parse().unwrap()).is_none());
        assert_eq!(turn_of("[::ffff:192.0.2.1]:1"), turn_of("192.0.2.1:2"));
        assert_ne!(turn_of("[::ffff:192.0.2.1]:1"), turn_of("[::ffff:192.0.2.2]:1"));
    }

    #[test]
    fn one_network_of_ipv6_has_one_turn_however_many_addresses_it_comes_from() {
        assert_eq!(turn_of("[2001:db8::1]:1"), turn_of("[2001:db8::2:3:4]:2"));
        assert_ne!(turn_of("[2001:db8::1]:1"), turn_of("[2001:db8:0:1::1]:1"));
        assert_eq!(turn(None), Owner::Stranger(None));
    }

    fn turn_of(client: &str) -> Owner {
        turn(Some(client.parse().unwrap()))
    }
}
