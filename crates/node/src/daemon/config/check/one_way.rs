//! `[[one-way]]`: checks each node's part in a stream over links that bring nothing back. Cuts the stream for the rate, loss and delay that the file states.

use super::super::file::{File, OneWayTable, Text};
use super::super::{OneWay, OneWayFrom, OneWayRelay, OneWayTo, RemoteNode, TunConfig};
use super::Checker;
use crate::address::{DEFAULT_PORT, Listen};
use crate::units::Rate;
use ipnet::IpNet;
use noctule::{Bandwidth, PublicKey, parse_address};
use noctule_proto::blind::{HEADER, Plan, RelayConfig, Shape};
use noctule_proto::crypto::SESSION_OVERHEAD;
use noctule_proto::units::Probability;
use std::net::{Ipv6Addr, SocketAddr};
use std::ops::{Range, RangeInclusive};
use std::time::Duration;
use toml::Spanned;

const TABLE: &str = "[[one-way]]";
/// How long a packet waits for its block, unless the file says otherwise, and what it may say.
const DEFAULT_DELAY: Duration = Duration::from_millis(100);
const DELAYS: RangeInclusive<Duration> = Duration::from_millis(10)..=Duration::from_secs(10);
/// Packets of a block: fewer need much redundancy, more need memory and gain next to nothing.
const BLOCKS: RangeInclusive<f64> = 64.0..=4096.0;
/// Batches of a block from which on larger ones are worth their header.
const LARGE_BATCHES: usize = 1024;
/// Groups of batches in a block, at least, where batches take turns.
const GROUPS: usize = 8;
const MOST_IN_TURN: usize = 8;
/// Bytes of a symbol that a relay may be told to pass: what a UDP datagram holds with its header.
const SYMBOLS: RangeInclusive<u16> = 64..=65_400;
const ONLY_RELAYS: &str = "it is for entries that pass streams of others on: leave it out here";
/// Bytes of IPv4 and UDP header, which the rate counts.
const HEADERS: usize = 28;

/// Whether a stream goes to this node or comes from it.
pub(super) fn is_named(file: &File, name: &str) -> bool {
    let names = |table: &OneWayTable| {
        table.to.as_ref().is_some_and(|to| to.get_ref() == name)
            || table.from.as_ref().is_some_and(|from| from.get_ref().texts(from.span()).iter().any(|n| n.get_ref() == name))
    };
    file.one_ways.iter().any(|table| names(table.get_ref()))
}

impl Checker<'_, '_> {
    pub(super) fn one_ways(
        &mut self,
        file: &File,
        nodes: &[RemoteNode],
        tun: Option<&TunConfig>,
        (listen, memory): (&[SocketAddr], usize),
    ) -> Vec<OneWay> {
        let relays = file.one_ways.iter().filter(|t| t.get_ref().to.is_none() && t.get_ref().from.is_none()).count();
        let default = [SocketAddr::from((Ipv6Addr::UNSPECIFIED, DEFAULT_PORT))];
        let own = if listen.is_empty() { &default } else { listen };
        let mut found: Vec<OneWay> = Vec::new();
        for table in &file.one_ways {
            let (place, table) = (table.span(), table.get_ref());
            let made = match (&table.to, &table.from) {
                (Some(to), Some(_)) => {
                    self.book.complain(to.span(), TABLE, "to and from: a stream goes one way; write a [[one-way]] for each direction");
                    None
                }
                (Some(to), None) => self.one_way_to(table, to, (file, nodes, tun)).map(OneWay::To),
                (None, Some(_)) => self.one_way_from(table, place, (file, nodes, tun)).map(OneWay::From),
                (None, None) => self.one_way_relay(table, place, (file, nodes, memory / relays.max(1))).map(OneWay::Relay),
            };
            let Some(made) = made else { continue };
            if let (OneWay::To(new), Some(to)) = (&made, &table.to)
                && found.iter().any(|o| matches!(o, OneWay::To(old) if old.key == new.key))
            {
                self.book.complain(to.span(), format!("{TABLE} to"), format!("there is a stream to {:?} already: remove one", new.name));
            }
            if let (Some(at), Some(text)) = (made.listen(), &table.listen) {
                self.alone_at(at, text, own, &found);
            }
            if let (Some(endpoint), Some(tun)) = (&table.endpoint, tun) {
                self.outside_the_tunnel(endpoint, nodes, tun);
            }
            found.push(made);
        }
        self.no_loop(file, &found);
        found
    }

    /// The key is needed, or must not be there.
    fn needed<'t, T>(&mut self, value: &'t Option<T>, place: &Range<usize>, key: &str, why: &str) -> Option<&'t T> {
        if value.is_none() {
            self.book.complain(place.clone(), TABLE, format!("{key} is needed{why}"));
        }
        value.as_ref()
    }

    fn refuse<T>(&mut self, value: &Option<Spanned<T>>, key: &str, why: &str) {
        if let Some(value) = value {
            self.book.complain(value.span(), format!("{TABLE} {key}"), why);
        }
    }

    fn one_way_to(
        &mut self,
        table: &OneWayTable,
        to: &Text,
        (file, nodes, tun): (&File, &[RemoteNode], Option<&TunConfig>),
    ) -> Option<OneWayTo> {
        self.refuse(&table.listen, "listen", "a stream to another node listens to nobody: leave it out");
        self.refuse(&table.sources, "sources", "a stream to another node comes from here: leave it out");
        self.refuse(&table.destinations, "for", ONLY_RELAYS);
        self.refuse(&table.symbol, "symbol", ONLY_RELAYS);
        let place = to.span();
        let node = self.one_way_node(to, "to", file, nodes);
        let endpoint =
            self.needed(&table.endpoint, &place, "endpoint", ": where datagrams go, the node itself or the first relay, as ADDRESS:PORT");
        let endpoint = endpoint.and_then(|e| self.endpoint(e));
        let rate = self.needed(
            &table.rate,
            &place,
            "rate",
            ", for instance rate = \"20mbit\": nothing comes back that could tell how much the path carries",
        );
        let rate = rate.and_then(|r| self.parse::<Rate>(r, &format!("{TABLE} rate"), "")).map(|r| r.0);
        let losses = self.losses(table, &place);
        let delay = self.delay(table);
        let psk = table.psk.as_ref().and_then(|p| self.psk(p, &format!("{TABLE} psk")));
        let Some(tun) = tun else {
            if file.tun.is_none() {
                self.book.complain(place, TABLE, "there is no [tun] whose packets the stream could carry: add one");
            }
            return None;
        };
        let (node, endpoint, rate, losses) = (node?, endpoint?, rate?, losses?);
        let mtu = node.mtu.unwrap_or(u16::MAX).min(tun.mtu);
        let Some((shape, plan)) = cut(rate, &losses, delay, mtu) else {
            let loss = table.loss.as_ref().map_or(place, Spanned::span);
            self.book.complain(
                loss,
                format!("{TABLE} loss"),
                "over links that lose so much nothing arrives: state less, or mend the links",
            );
            return None;
        };
        Some(OneWayTo { name: node.name.clone(), key: node.key, endpoint, rate, delay, psk, shape, plan })
    }

    fn one_way_from(
        &mut self,
        table: &OneWayTable,
        place: Range<usize>,
        (file, nodes, tun): (&File, &[RemoteNode], Option<&TunConfig>),
    ) -> Option<OneWayFrom> {
        const SENDERS: &str = "the sender decides: leave it out here";
        self.refuse(&table.endpoint, "endpoint", "streams from others end here: leave it out, or leave out from to pass them on");
        self.refuse(&table.rate, "rate", SENDERS);
        self.refuse(&table.loss, "loss", SENDERS);
        self.refuse(&table.delay, "delay", SENDERS);
        self.refuse(&table.destinations, "for", ONLY_RELAYS);
        self.refuse(&table.symbol, "symbol", ONLY_RELAYS);
        let listen = self.needed(&table.listen, &place, "listen", ": where datagrams come, as ADDRESS:PORT");
        let listen = listen.and_then(|l| self.one_way_listen(l));
        let from = table.from.as_ref()?;
        let mut senders: Vec<(String, PublicKey)> = Vec::new();
        let texts = from.get_ref().texts(from.span());
        if texts.is_empty() {
            self.book.complain(from.span(), format!("{TABLE} from"), "an empty list is nobody: name the nodes whose streams are taken");
        }
        for text in &texts {
            let Some(node) = self.one_way_node(text, "from", file, nodes) else { continue };
            if senders.iter().any(|(_, key)| *key == node.key) {
                self.book.complain(text.span(), format!("{TABLE} from"), format!("{:?} stands here twice", node.name));
            }
            senders.push((node.name.clone(), node.key));
        }
        let psk = table.psk.as_ref().and_then(|p| self.psk(p, &format!("{TABLE} psk")));
        if tun.is_none() && file.tun.is_none() {
            self.book.complain(from.span(), TABLE, "there is no [tun] that could take the packets: add one");
        }
        let sources = self.sources(table);
        Some(OneWayFrom { senders, listen: listen?, sources, psk })
    }

    /// Networks that datagrams may come from.
    fn sources(&mut self, table: &OneWayTable) -> Vec<IpNet> {
        let Some(sources) = &table.sources else { return Vec::new() };
        let texts = sources.get_ref().texts(sources.span());
        if texts.is_empty() {
            self.book.complain(sources.span(), format!("{TABLE} sources"), "an empty list is nowhere: name addresses, or leave it out");
        }
        texts.iter().filter_map(|text| self.prefix(text, &format!("{TABLE} sources"))).collect()
    }

    /// Whose streams a relay passes on: keys, or names of nodes of this file.
    fn destinations(&mut self, table: &OneWayTable, file: &File, nodes: &[RemoteNode]) -> Vec<PublicKey> {
        let Some(destinations) = &table.destinations else { return Vec::new() };
        let texts = destinations.get_ref().texts(destinations.span());
        if texts.is_empty() {
            self.book.complain(destinations.span(), format!("{TABLE} for"), "an empty list is nobody: name keys or nodes, or leave it out");
        }
        let key = |text: &Text| text.get_ref().parse::<PublicKey>().ok();
        texts.iter().filter_map(|text| key(text).or_else(|| Some(self.one_way_node(text, "for", file, nodes)?.key))).collect()
    }

    /// The largest symbol that passes a relay.
    fn symbol(&mut self, table: &OneWayTable) -> u16 {
        let Some(symbol) = &table.symbol else { return RelayConfig::SYMBOL };
        if !SYMBOLS.contains(symbol.get_ref()) {
            let wrong = format!("{} bytes are out of range: {} to {}", symbol.get_ref(), SYMBOLS.start(), SYMBOLS.end());
            self.book.complain(symbol.span(), format!("{TABLE} symbol"), wrong);
        }
        *symbol.get_ref()
    }

    fn one_way_relay(
        &mut self,
        table: &OneWayTable,
        place: Range<usize>,
        (file, nodes, memory): (&File, &[RemoteNode], usize),
    ) -> Option<OneWayRelay> {
        let (sources, destinations, symbol) = (self.sources(table), self.destinations(table, file, nodes), self.symbol(table));
        self.refuse(&table.psk, "psk", "a relay has no keys of the streams that pass: leave it out");
        self.refuse(&table.delay, "delay", "the sender decides: leave it out here");
        let roles = ": name to for a stream to a node, from for streams from nodes, or listen and endpoint to pass streams on";
        let listen = self.needed(&table.listen, &place, "listen", roles)?;
        let endpoint = self.needed(&table.endpoint, &place, "endpoint", roles)?;
        let (listen, endpoint) = (self.one_way_listen(listen), self.endpoint(endpoint));
        let rate = self.needed(
            &table.rate,
            &place,
            "rate",
            ", of the path to the endpoint: nothing comes back that could tell how much it carries",
        );
        let rate = rate.and_then(|r| self.parse::<Rate>(r, &format!("{TABLE} rate"), "")).map(|r| r.0);
        let losses = self.losses(table, &place)?;
        if let ([_, _, ..], Some(loss)) = (&losses[..], &table.loss) {
            self.book.complain(loss.span(), format!("{TABLE} loss"), "a relay needs the loss of its own next link only");
        }
        Some(OneWayRelay {
            listen: listen?,
            sources,
            destinations,
            endpoint: endpoint?,
            rate: rate?,
            loss: *losses.first()?,
            symbol,
            memory,
        })
    }

    fn one_way_node<'n>(&mut self, name: &Text, key: &str, file: &File, nodes: &'n [RemoteNode]) -> Option<&'n RemoteNode> {
        let found = nodes.iter().find(|n| &n.name == name.get_ref());
        let neighbours = file.neighbours.iter().map(|n| &n.name);
        let names: Vec<&str> = neighbours.chain(file.remotes.iter().map(|r| &r.name)).map(|n| n.get_ref().as_str()).collect();
        // A node whose own entry is wrong has been complained of.
        if found.is_none() && !names.contains(&name.get_ref().as_str()) {
            let known = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
            let text =
                format!("there is no node {:?}: add a [[remote]] with its key and addresses; those of this file: {known}", name.get_ref());
            self.book.complain(name.span(), format!("{TABLE} {key}"), text);
        }
        found
    }

    fn endpoint(&mut self, text: &Text) -> Option<SocketAddr> {
        let listed = text.get_ref().parse::<Listen>().ok().filter(|place| place.ip().is_some());
        let found = listed.and_then(|place| place.places_or(DEFAULT_PORT).ok()?.first().copied());
        let found = found.filter(|at| at.port() != 0 && !at.ip().is_unspecified());
        if found.is_none() {
            let wrong = format!(
                "{:?} is no place to send to: write ADDRESS, 192.0.2.1:4243 or [2001:db8::1]:4243; names cannot be asked for over such links",
                text.get_ref()
            );
            self.book.complain(text.span(), format!("{TABLE} endpoint"), wrong);
        }
        found
    }

    fn one_way_listen(&mut self, text: &Text) -> Option<SocketAddr> {
        let found = self.place(text, &format!("{TABLE} listen"), Ipv6Addr::UNSPECIFIED.into(), 0)?;
        if found.port() == 0 {
            self.book.complain(text.span(), format!("{TABLE} listen"), "a port is needed: the sender has to know it");
            return None;
        }
        Some(found)
    }

    fn losses(&mut self, table: &OneWayTable, place: &Range<usize>) -> Option<Vec<Probability>> {
        let why = ", what is expected to be lost, as loss = \"5%\", or [\"5%\", \"2%\"] for each link on the route in turn: it says how much is sent beside";
        let loss = self.needed(&table.loss, place, "loss", why)?;
        let texts = loss.get_ref().texts(loss.span());
        if texts.is_empty() {
            self.book.complain(loss.span(), format!("{TABLE} loss"), "an empty list is no route: state the loss of each link");
        }
        let mut found = Vec::new();
        for text in &texts {
            let percent = text.get_ref().strip_suffix('%').and_then(|n| n.trim().parse::<f64>().ok());
            match percent.filter(|p| (0.0..100.0).contains(p)) {
                Some(percent) => found.push(Probability::new(percent / 100.0)),
                None => {
                    let wrong = format!("{:?}: write a loss as 5% or 0.5%; at 100% nothing arrives", text.get_ref());
                    self.book.complain(text.span(), format!("{TABLE} loss"), wrong);
                }
            }
        }
        (found.len() == texts.len() && !found.is_empty()).then_some(found)
    }

    fn delay(&mut self, table: &OneWayTable) -> Duration {
        let delay = self.time(table.delay.as_ref(), "[[one-way]] delay", DEFAULT_DELAY);
        if let (Some(text), false) = (&table.delay, DELAYS.contains(&delay) || delay.is_zero()) {
            self.book.complain(text.span(), format!("{TABLE} delay"), "out of range: 10ms to 10s");
            return DEFAULT_DELAY;
        }
        delay
    }

    /// Nobody else of this file has the address.
    fn alone_at(&mut self, at: SocketAddr, text: &Text, own: &[SocketAddr], before: &[OneWay]) {
        let key = format!("{TABLE} listen");
        if let Some(other) = own.iter().find(|other| collide(at, **other)) {
            let wrong = format!("{at} is taken by [node] listen ({other}): streams in one direction need a port of their own");
            self.book.complain(text.span(), key, wrong);
        } else if let Some(other) = before.iter().filter_map(OneWay::listen).find(|other| collide(at, *other)) {
            let wrong = format!(
                "{at} is taken by another {TABLE} ({other}): choose another port; one entry takes streams of several nodes, from = [\"…\", \"…\"]"
            );
            self.book.complain(text.span(), key, wrong);
        }
    }

    fn outside_the_tunnel(&mut self, endpoint: &Text, nodes: &[RemoteNode], tun: &TunConfig) {
        let Ok(at) = parse_address(endpoint.get_ref()) else { return };
        let covers = |node: &&RemoteNode| node.prefixes.iter().any(|p| p.contains(&at.ip())) || node.addresses.contains(&at.ip());
        let text = match nodes.iter().find(covers) {
            Some(node) => format!("{} lies behind {:?}", at.ip(), node.name),
            None if tun.addresses.iter().any(|a| a.contains(&at.ip())) => format!("{} lies in the network of [tun]", at.ip()),
            None => return,
        };
        let text = format!("{text}, so the tunnel would carry the stream itself: name an address outside it");
        self.book.complain(endpoint.span(), format!("{TABLE} endpoint"), text);
    }

    /// What passes a relay must not come back to it within this node. Over other nodes it may: what came before raises no rank.
    fn no_loop(&mut self, file: &File, found: &[OneWay]) {
        let relays = || found.iter().filter_map(|o| if let OneWay::Relay(r) = o { Some(r) } else { None });
        for table in &file.one_ways {
            let (OneWayTable { to: None, from: None, endpoint: Some(text), listen: Some(at), .. }, Ok(listen)) =
                (table.get_ref(), parse_address(table.get_ref().listen.as_ref().map_or("", |l| l.get_ref())))
            else {
                continue;
            };
            let mut next = parse_address(text.get_ref()).ok();
            for _ in 0..=found.len() {
                let Some(to) = next else { break };
                if is_at(to, listen) {
                    let wrong = format!("leads back to {} of this entry: datagrams would go in a circle", at.get_ref());
                    self.book.complain(text.span(), format!("{TABLE} endpoint"), wrong);
                    break;
                }
                next = relays().find(|r| is_at(to, r.listen)).map(|r| r.endpoint);
            }
        }
    }
}

/// Two sockets of one host cannot have both.
fn collide(a: SocketAddr, b: SocketAddr) -> bool {
    // [::] takes IPv4 as well.
    let any = |x: SocketAddr, y: SocketAddr| x.ip().is_unspecified() && (x.is_ipv6() || y.is_ipv4());
    a.port() == b.port() && (a.ip() == b.ip() || any(a, b) || any(b, a))
}

/// Whether what is sent there comes to this socket, as far as a file can tell.
fn is_at(to: SocketAddr, listen: SocketAddr) -> bool {
    to == listen || (to.port() == listen.port() && to.ip().is_loopback() && listen.ip().is_unspecified())
}

/// A block of the stream lasts `delay` at the full rate, with all its redundancy.
fn cut(rate: Bandwidth, losses: &[Probability], delay: Duration, mtu: u16) -> Option<(Shape, Plan)> {
    let symbol = mtu.checked_add(2 + SESSION_OVERHEAD as u16)?;
    let packets = rate.bytes_per_sec() * delay.as_secs_f64() / (usize::from(symbol) + HEADER + HEADERS) as f64;
    let mut redundancy = 1.0;
    let mut made = None;
    // What is sent beside makes a block smaller, and a smaller one needs somewhat more.
    for _ in 0..3 {
        let block = (packets / redundancy).clamp(*BLOCKS.start(), *BLOCKS.end()) as usize;
        let batch = if block >= LARGE_BATCHES { 32 } else { 16 };
        let in_turn = (block / GROUPS / batch).clamp(1, MOST_IN_TURN);
        let in_turn = if in_turn.is_power_of_two() { in_turn } else { in_turn.next_power_of_two() / 2 };
        let block = block / (batch * in_turn) * (batch * in_turn);
        let shape = Shape::new(block as u16, batch as u8, in_turn as u8, symbol).ok()?;
        let plan = Plan::new(&shape, losses).ok()?;
        redundancy = plan.redundancy(&shape);
        made = Some((shape, plan));
    }
    made
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_follow_rate_loss_and_delay() {
        let of = |mbit: f64, losses: &[f64], ms: u64| {
            let losses: Vec<_> = losses.iter().map(|p| Probability::new(*p)).collect();
            let (shape, plan) = cut(Bandwidth::from_mbit(mbit), &losses, Duration::from_millis(ms), 1380).expect("a cut");
            (shape.block_packets(), shape.batch_size(), shape.depth(), plan.redundancy(&shape))
        };
        let (block, batch, depth, redundancy) = of(20.0, &[0.0], 100);
        assert_eq!((block, batch, depth), (160, 16, 1));
        assert!((redundancy - 1.0).abs() < 1e-9);
        let (block, _, _, redundancy) = of(20.0, &[0.05, 0.05], 100);
        assert!((96..160).contains(&block) && (1.2..1.6).contains(&redundancy), "{block} {redundancy}");
        assert_eq!(of(0.5, &[0.05], 100).0, 64, "small ones would be nothing but redundancy");
        let (block, batch, depth, redundancy) = of(1000.0, &[0.05], 1000);
        assert!(block == 4096 && batch == 32 && depth == 8 && redundancy < 1.15, "{block} {batch} {depth} {redundancy}");
    }

    #[test]
    fn sockets_of_one_host_that_cannot_both_be() {
        let of = |a: &str, b: &str| collide(a.parse().unwrap(), b.parse().unwrap());
        assert!(of("[::]:1", "192.0.2.1:1") && of("192.0.2.1:1", "[::]:1") && of("0.0.0.0:1", "192.0.2.1:1"));
        assert!(!of("[::]:1", "[::]:2") && !of("0.0.0.0:1", "[2001:db8::1]:1") && !of("192.0.2.1:1", "192.0.2.2:1"));
    }
}
