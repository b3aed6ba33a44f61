//! All hosts there are, grouped by the rules and credentials that name them.
use super::cover::{Extent, Part};
use super::nets;
use crate::host_pattern::HostPattern;
use crate::{Host, Policy};
use ipnet::IpNet;
use std::collections::{HashMap, HashSet};

/// What names a host: a rule, a rule that opens it as a special address, or a credential, each with its policy's number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Namer {
    Rule(usize, usize),
    Opens(usize, usize),
    Credential(usize, usize),
}

/// Hosts of which all policies say the same.
#[derive(Debug)]
pub(crate) struct HostGroup {
    /// By number among the classes.
    pub(crate) classes: Vec<usize>,
    pub(crate) witness: Host,
    pub(crate) named_by: Vec<Namer>,
}

/// All hosts.
pub(crate) struct Hosts {
    nodes: Vec<Node>,
    classes: Vec<Class>,
    pub(crate) groups: Vec<HostGroup>,
}

/// A pattern of some rule or credential, below the smallest one around it.
struct Node {
    pattern: HostPattern,
    parent: Option<usize>,
    children: Vec<usize>,
    own: Vec<Namer>,
    /// Its own hosts, which no pattern below names: ordinary and special ones.
    classes: [Option<usize>; 2],
}

struct Class {
    node: usize,
}

/// The names' root is any name, the addresses' root any address.
const NAMES: usize = 0;
const ADDRESSES: usize = 1;

impl Hosts {
    pub(crate) fn new(policies: &[&Policy]) -> Self {
        let mut builder = Builder::new();
        for (side, policy) in policies.iter().enumerate() {
            for (number, rule) in policy.rules.iter().enumerate() {
                for pattern in &rule.hosts {
                    builder.add(pattern, Namer::Rule(side, number));
                }
                for net in &rule.private {
                    builder.add(&HostPattern::Net(*net), Namer::Opens(side, number));
                }
            }
            for (number, credential) in policy.credentials.iter().enumerate() {
                for pattern in &credential.patterns {
                    builder.add(pattern, Namer::Credential(side, number));
                }
            }
        }
        builder.finish()
    }

    /// These classes in the policies' words.
    pub(crate) fn describe(&self, classes: &[usize]) -> Extent {
        let wanted: HashSet<usize> = classes.iter().copied().collect();
        let whole = |node: usize| {
            self.nodes.get(node).is_some_and(|node| {
                let mut own = node.classes.iter().flatten().peekable();
                own.peek().is_some() && own.all(|class| wanted.contains(class))
            })
        };
        if wanted.len() == self.classes.len() {
            return Extent(vec![Part::of("*")]);
        }
        let mut parts = Vec::new();
        let mut seen = HashSet::new();
        for class in classes {
            let Some(Class { node }) = self.classes.get(*class) else {
                continue;
            };
            if !whole(*node) {
                parts.push(self.half(*node, *class));
            } else if seen.insert(*node) && !self.parent(*node).is_some_and(whole) {
                parts.push(Part {
                    of: vec![self.name(*node)],
                    except: self.holes(*node, &whole),
                });
            }
        }
        parts.sort();
        Extent(parts)
    }

    fn parent(&self, node: usize) -> Option<usize> {
        self.nodes.get(node).and_then(|node| node.parent)
    }

    fn name(&self, node: usize) -> String {
        match node {
            NAMES => "any name".to_owned(),
            ADDRESSES => "any address".to_owned(),
            _ => self
                .nodes
                .get(node)
                .map(|node| node.pattern.to_string())
                .unwrap_or_default(),
        }
    }

    /// The nearest patterns below that are not whole.
    fn holes(&self, node: usize, whole: &dyn Fn(usize) -> bool) -> Vec<String> {
        let mut holes = Vec::new();
        let mut open = vec![node];
        while let Some(node) = open.pop() {
            for child in self.nodes.get(node).iter().flat_map(|node| &node.children) {
                match whole(*child) {
                    true => open.push(*child),
                    false => holes.push(self.name(*child)),
                }
            }
        }
        holes.sort();
        holes
    }

    /// Only the ordinary or only the special addresses of a range.
    fn half(&self, node: usize, class: usize) -> Part {
        let special = self
            .nodes
            .get(node)
            .is_some_and(|node| node.classes[1] == Some(class));
        let kind = if special { "special" } else { "public" };
        let name = match node {
            ADDRESSES => format!("any {kind} address"),
            _ => format!("{kind} addresses of {}", self.name(node)),
        };
        let below = self
            .nodes
            .get(node)
            .into_iter()
            .flat_map(|node| &node.children)
            .map(|child| self.name(*child));
        let mut except: Vec<String> = below.collect();
        except.sort();
        Part {
            of: vec![name],
            except,
        }
    }
}

struct Builder {
    nodes: Vec<Node>,
    names: HashMap<String, usize>,
    under: HashMap<String, usize>,
    nets: HashMap<IpNet, usize>,
}

impl Builder {
    fn new() -> Self {
        let root = || Node {
            pattern: HostPattern::Any,
            parent: None,
            children: Vec::new(),
            own: Vec::new(),
            classes: [None; 2],
        };
        Self {
            nodes: vec![root(), root()],
            names: HashMap::new(),
            under: HashMap::new(),
            nets: HashMap::new(),
        }
    }

    fn add(&mut self, pattern: &HostPattern, namer: Namer) {
        let next = self.nodes.len();
        let node = match pattern {
            HostPattern::Any => {
                for root in [NAMES, ADDRESSES] {
                    self.nodes[root].own.push(namer);
                }
                return;
            }
            HostPattern::Name(name) => *self.names.entry(name.clone()).or_insert(next),
            HostPattern::Under(domain) => *self.under.entry(domain.clone()).or_insert(next),
            HostPattern::Net(net) => *self.nets.entry(*net).or_insert(next),
        };
        if node == next {
            self.nodes.push(Node {
                pattern: pattern.clone(),
                parent: None,
                children: Vec::new(),
                own: Vec::new(),
                classes: [None; 2],
            });
        }
        if let Some(node) = self.nodes.get_mut(node) {
            node.own.push(namer);
        }
    }

    fn finish(mut self) -> Hosts {
        let mut nets: Vec<(IpNet, usize)> = self.nets.iter().map(|(net, node)| (*net, *node)).collect();
        nets.sort_unstable();
        let ranges: Vec<IpNet> = nets.iter().map(|(net, _)| *net).collect();
        let around = nets::parents(&ranges);
        for ((_, node), parent) in nets.iter().zip(around) {
            let parent = parent
                .and_then(|number| nets.get(number))
                .map_or(ADDRESSES, |(_, node)| *node);
            self.hang(*node, parent);
        }
        for node in ADDRESSES + 1..self.nodes.len() {
            let domain = match &self.nodes[node].pattern {
                HostPattern::Name(name) | HostPattern::Under(name) => name.clone(),
                _ => continue,
            };
            let parent = self.domain_around(&domain).unwrap_or(NAMES);
            self.hang(node, parent);
        }
        let witnesses = self.witnesses(&nets, &ranges);
        self.group(witnesses)
    }

    fn hang(&mut self, node: usize, parent: usize) {
        self.nodes[node].parent = Some(parent);
        self.nodes[parent].children.push(node);
    }

    /// The smallest `*.domain` that this name or domain lies strictly under.
    fn domain_around(&self, name: &str) -> Option<usize> {
        let mut rest = name;
        while let Some((_, domain)) = rest.split_once('.') {
            if let Some(node) = self.under.get(domain) {
                return Some(*node);
            }
            rest = domain;
        }
        None
    }

    /// A host for each class: node, whether it is a special address, and the host.
    fn witnesses(&self, nets: &[(IpNet, usize)], ranges: &[IpNet]) -> Vec<(usize, bool, Host)> {
        let mut found = Vec::new();
        let mut at_root = HashSet::new();
        if let Some(name) = self.fresh_name("") {
            found.push((NAMES, false, Host::Name(name.into())));
        }
        for region in nets::regions(ranges) {
            let node = region
                .net
                .and_then(|number| nets.get(number))
                .map_or(ADDRESSES, |(_, node)| *node);
            // At the root no rule tells the families apart.
            if node != ADDRESSES || at_root.insert(region.special) {
                found.push((node, region.special, Host::Address(region.witness)));
            }
        }
        for (number, node) in self.nodes.iter().enumerate() {
            match &node.pattern {
                HostPattern::Name(name) => found.push((number, false, Host::Name(name.as_str().into()))),
                HostPattern::Under(domain) => {
                    if let Some(name) = self.fresh_name(domain) {
                        found.push((number, false, Host::Name(name.into())));
                    }
                }
                _ => {}
            }
        }
        found
    }

    /// A name under this domain (or under none) that no smaller pattern names; none where all that would fit are named.
    fn fresh_name(&self, domain: &str) -> Option<String> {
        let children = self.names.len() + self.under.len();
        let single = "xyzabcdefghijklmnopqrstuvw0123456789".chars().map(String::from);
        let longer = (0..=children).map(|n| format!("other{n}"));
        let own = self.under.get(domain).copied();
        let mut candidates = single.chain(longer).flat_map(|label| match domain {
            "" => vec![format!("{label}.example"), label],
            _ => vec![format!("{label}.{domain}")],
        });
        candidates.find_map(|name| {
            let fresh = !self.names.contains_key(&name) && self.domain_around(&name) == own;
            (fresh && matches!(Host::parse(&name), Ok(Host::Name(parsed)) if *parsed == *name))
                .then_some(name)
        })
    }

    fn group(mut self, mut witnesses: Vec<(usize, bool, Host)>) -> Hosts {
        witnesses.sort_by_key(|(node, special, _)| (*node, *special));
        let mut sets = Sets::default();
        let mut named: Vec<Option<usize>> = vec![None; self.nodes.len()];
        let mut groups: Vec<HostGroup> = Vec::new();
        let mut known: HashMap<(usize, bool), usize> = HashMap::new();
        let mut classes = Vec::new();
        for (node, special, witness) in witnesses {
            let class = classes.len();
            classes.push(Class { node });
            self.nodes[node].classes[usize::from(special)] = Some(class);
            let set = self.set(node, &mut named, &mut sets);
            let group = *known.entry((set, special)).or_insert_with(|| {
                groups.push(HostGroup {
                    classes: Vec::new(),
                    witness,
                    named_by: sets.lists[set].clone(),
                });
                groups.len() - 1
            });
            groups[group].classes.push(class);
        }
        Hosts {
            nodes: self.nodes,
            classes,
            groups,
        }
    }

    /// All that names the hosts of a node: its own, and what names those around it.
    fn set(&self, node: usize, named: &mut [Option<usize>], sets: &mut Sets) -> usize {
        let mut chain = Vec::new();
        let mut at = Some(node);
        let mut set = None;
        while let Some(node) = at {
            set = named[node];
            if set.is_some() {
                break;
            }
            chain.push(node);
            at = self.nodes[node].parent;
        }
        let mut set = set.unwrap_or_else(|| sets.intern(Vec::new()));
        for node in chain.into_iter().rev() {
            set = sets.with(set, &self.nodes[node].own);
            named[node] = Some(set);
        }
        set
    }
}

/// Sets of namers, each kept once.
#[derive(Default)]
struct Sets {
    lists: Vec<Vec<Namer>>,
    known: HashMap<Vec<Namer>, usize>,
    joined: HashMap<(usize, Vec<Namer>), usize>,
}

impl Sets {
    fn intern(&mut self, list: Vec<Namer>) -> usize {
        let next = self.lists.len();
        let set = *self.known.entry(list.clone()).or_insert(next);
        if set == next {
            self.lists.push(list);
        }
        set
    }

    fn with(&mut self, base: usize, own: &[Namer]) -> usize {
        if let Some(set) = self.joined.get(&(base, own.to_vec())) {
            return *set;
        }
        let mut list = self.lists.get(base).cloned().unwrap_or_default();
        list.extend(own);
        list.sort_unstable();
        list.dedup();
        let set = self.intern(list);
        self.joined.insert((base, own.to_vec()), set);
        set
    }
}
