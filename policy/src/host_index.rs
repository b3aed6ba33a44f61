//! Which rules name a host: a trie over its labels from the right, address ranges by prefix.
use crate::bucket::Bucket;
use crate::host_pattern::HostPattern;
use crate::rule::Rule;
use crate::{Host, Moment};
use hashbrown::{DefaultHashBuilder, HashMap, HashTable};
use ipnet::IpNet;
use std::hash::BuildHasher;
use std::net::IpAddr;

/// The rules of a policy, found by host. What it costs to ask depends on the labels of the name, not on how many rules there are.
#[derive(Debug, Default)]
pub(crate) struct HostIndex {
    names: LabelTrie,
    nets: Nets,
    any: BucketId,
    /// The first is empty. Equal lists of rules stand here once.
    buckets: Vec<Bucket>,
}

type BucketId = u32;
const EMPTY: BucketId = 0;
const ROOT: u32 = 0;

#[derive(Debug, Default)]
struct LabelTrie {
    /// The root stands for no label at all.
    nodes: Vec<Node>,
    labels: String,
    children: HashTable<u32>,
    hasher: DefaultHashBuilder,
}

#[derive(Debug, Default)]
struct Node {
    parent: u32,
    /// Where its label stands in `labels`.
    start: u32,
    length: u8,
    /// The rules that name exactly this.
    itself: BucketId,
    /// The rules that name what is under it.
    under: BucketId,
}

#[derive(Debug, Default)]
struct Nets {
    /// The lengths that occur, for IPv4 and IPv6.
    lengths: [Vec<u8>; 2],
    buckets: HashMap<IpNet, BucketId>,
}

impl HostIndex {
    pub(crate) fn new(rules: &[Rule]) -> Self {
        let mut builder = Builder::default();
        for (number, rule) in (0u32..).zip(rules) {
            for pattern in &rule.hosts {
                builder.add(pattern, number);
            }
        }
        builder.build(rules)
    }

    /// Calls with the numbers of the rules that name this host and may have something to say at this moment, in no order,
    /// and maybe more than once. `each_counts` where equal rules must be told apart, since a grant may lift one of them.
    pub(crate) fn each(&self, host: &Host, moment: &Moment, each_counts: bool, mut visit: impl FnMut(u32)) {
        self.buckets(host, |bucket| bucket.each(moment, each_counts, &mut visit));
    }

    /// Numbers of all rules that name this host, in the policy's order, each once.
    pub(crate) fn candidates(&self, host: &Host) -> Vec<u32> {
        let mut found = Vec::new();
        self.buckets(host, |bucket| found.extend_from_slice(bucket.rules()));
        found.sort_unstable();
        found.dedup();
        found
    }

    fn buckets(&self, host: &Host, mut visit: impl FnMut(&Bucket)) {
        let mut visit = |id: BucketId| {
            if id != EMPTY
                && let Some(bucket) = self.buckets.get(place(id))
            {
                visit(bucket);
            }
        };
        visit(self.any);
        match host {
            Host::Name(name) => self.names.each(name, visit),
            Host::Address(address) => self.nets.each(*address, visit),
        }
    }
}

impl LabelTrie {
    /// What names under a domain mean ends where its own node is the last.
    fn each(&self, name: &str, mut visit: impl FnMut(BucketId)) {
        let mut node = ROOT;
        let mut labels = name.rsplit('.').peekable();
        while let Some(label) = labels.next() {
            let Some(child) = self.child(node, label) else {
                return;
            };
            node = child;
            let Some(found) = self.nodes.get(place(node)) else {
                return;
            };
            visit(match labels.peek() {
                Some(_) => found.under,
                None => found.itself,
            });
        }
    }

    fn child(&self, parent: u32, label: &str) -> Option<u32> {
        self.children
            .find(self.hash(parent, label), |child| self.is(*child, parent, label))
            .copied()
    }

    fn is(&self, node: u32, parent: u32, label: &str) -> bool {
        self.nodes
            .get(place(node))
            .is_some_and(|node| node.parent == parent && self.label(node) == label)
    }

    fn label(&self, node: &Node) -> &str {
        let start = place(node.start);
        self.labels
            .get(start..start + usize::from(node.length))
            .unwrap_or_default()
    }

    fn hash(&self, parent: u32, label: &str) -> u64 {
        self.hasher.hash_one((parent, label))
    }

    /// The node of a name, made where there is none.
    fn node(&mut self, name: &str) -> u32 {
        if self.nodes.is_empty() {
            self.nodes.push(Node::default());
        }
        name.rsplit('.').fold(ROOT, |parent, label| {
            self.child(parent, label)
                .unwrap_or_else(|| self.insert(parent, label))
        })
    }

    fn insert(&mut self, parent: u32, label: &str) -> u32 {
        let new = number(self.nodes.len());
        self.nodes.push(Node {
            parent,
            start: number(self.labels.len()),
            // A label has at most 63 bytes.
            length: u8::try_from(label.len()).unwrap_or(u8::MAX),
            ..Node::default()
        });
        self.labels.push_str(label);
        let hash = self.hash(parent, label);
        let (nodes, labels, hasher) = (&self.nodes, &self.labels, &self.hasher);
        self.children.insert_unique(hash, new, |node| {
            let node = &nodes[place(*node)];
            let start = place(node.start);
            hasher.hash_one((node.parent, &labels[start..start + usize::from(node.length)]))
        });
        new
    }
}

impl Nets {
    fn each(&self, address: IpAddr, mut visit: impl FnMut(BucketId)) {
        for length in &self.lengths[usize::from(address.is_ipv6())] {
            if let Ok(net) = IpNet::new(address, *length)
                && let Some(bucket) = self.buckets.get(&net.trunc())
            {
                visit(*bucket);
            }
        }
    }
}

/// Lists of rules while the index is made.
#[derive(Default)]
struct Builder {
    names: LabelTrie,
    any: Vec<u32>,
    /// By node.
    itself: HashMap<u32, Vec<u32>>,
    under: HashMap<u32, Vec<u32>>,
    nets: HashMap<IpNet, Vec<u32>>,
}

impl Builder {
    fn add(&mut self, pattern: &HostPattern, number: u32) {
        let list = match pattern {
            HostPattern::Any => &mut self.any,
            HostPattern::Name(name) => self.itself.entry(self.names.node(name)).or_default(),
            HostPattern::Under(domain) => self.under.entry(self.names.node(domain)).or_default(),
            HostPattern::Net(net) => self.nets.entry(net.trunc()).or_default(),
        };
        if list.last() != Some(&number) {
            list.push(number);
        }
    }

    fn build(self, rules: &[Rule]) -> HostIndex {
        let mut shelf = Shelf {
            rules,
            known: HashMap::new(),
            buckets: vec![Bucket::default()],
        };
        let mut names = self.names;
        for (node, list) in self.itself {
            names.nodes[place(node)].itself = shelf.put(list);
        }
        for (node, list) in self.under {
            names.nodes[place(node)].under = shelf.put(list);
        }
        let mut nets = Nets::default();
        for (net, list) in self.nets {
            let lengths = &mut nets.lengths[usize::from(net.addr().is_ipv6())];
            if !lengths.contains(&net.prefix_len()) {
                lengths.push(net.prefix_len());
            }
            nets.buckets.insert(net, shelf.put(list));
        }
        names.nodes.shrink_to_fit();
        names.labels.shrink_to_fit();
        HostIndex {
            names,
            nets,
            any: shelf.put(self.any),
            buckets: shelf.buckets,
        }
    }
}

/// Buckets, one for each list of rules that occurs.
struct Shelf<'r> {
    rules: &'r [Rule],
    known: HashMap<Vec<u32>, BucketId>,
    buckets: Vec<Bucket>,
}

impl Shelf<'_> {
    fn put(&mut self, list: Vec<u32>) -> BucketId {
        if list.is_empty() {
            return EMPTY;
        }
        if let Some(id) = self.known.get(&list) {
            return *id;
        }
        let id = number(self.buckets.len());
        self.buckets.push(Bucket::new(&list, self.rules));
        self.known.insert(list, id);
        id
    }
}

/// An index into one of the lists here, all of which are far shorter than `u32` reaches.
fn place(number: u32) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

fn number(length: usize) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX)
}
