//! From the file as written to what it means: every value is looked at, every contradiction told, before anything starts.

mod one_way;

use super::complaint::{Book, Complaints};
use super::file::{File, KernelTable, NeighbourTable, OneOrMore, RemoteTable, Text, TunTable};
use super::read::read;
use super::{Config, KernelRoutes, Lan, Limits, LinkConfig, MetricsConfig, RemoteNode, StaticRoute, Treatment, TunConfig, TunTcp};
use crate::address::{DEFAULT_PORT, Listen, host_port};
use crate::identity;
use crate::units::{CcName, Span};
use ipnet::IpNet;
use noctule::{Answer, CongestionControl, MAX_PATHS, NodeConfig, PublicKey, RelayLimits, SharedKey, parse_address};
use noctule_proto::blind::RelayConfig;
use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;
use toml::Spanned;

/// With a coded packet's headers it fits into one datagram of 1472 bytes over relays (P6), and leaves IPv6's 1280 well alone.
const DEFAULT_MTU: u16 = 1380;
/// RFC 8200 §5.
const MIN_MTU: u16 = 1280;
const MAX_MTU: u16 = 9000;
/// Objects that a node passes on to several neighbours at a time, unless its file says otherwise.
const MAX_TREES: usize = 64;
/// Where Prometheus asks, of the local host only unless the file names another address.
const METRICS_PORT: u16 = 9494;
/// Where streams in one direction keep what they must not forget.
const DEFAULT_STATE: &str = "/var/lib/noctule/one-way";

pub(super) fn check(path: &Path, content: &str) -> Result<Config, Complaints> {
    let mut book = Book::new(path, content);
    let file = match read(&mut book, content) {
        Some((file, true)) => file,
        // What its values mean is looked at when they are of their kinds.
        Some((_, false)) | None => return book.close(None),
    };
    let config = Checker { book: &mut book, base: path.parent().unwrap_or(Path::new("")) }.config(file);
    book.close(config)
}

struct Checker<'a, 'b> {
    book: &'a mut Book<'b>,
    /// Relative paths are relative to the file.
    base: &'a Path,
}

impl Checker<'_, '_> {
    fn config(&mut self, file: File) -> Option<Config> {
        let defaults = NodeConfig::default();
        let node = &file.node;
        let listen = node.listen.as_ref().map_or_else(Vec::new, |l| self.listen(l));
        let addresses = self.addresses(&node.addresses, "[node] addresses");
        let congestion = node.congestion.as_ref().and_then(|c| self.parse::<CcName>(c, "[node] congestion", "")).map(|c| c.0);
        let nodes = self.nodes(&file, &addresses);
        let routes = self.routes(&file, &nodes, &addresses);
        let tun = file.tun.as_ref().and_then(|t| self.tun(t));
        let one_way_memory = self.size(file.limits.one_way_memory.as_ref(), "[limits] one-way-memory", RelayConfig::MEMORY);
        let one_ways = self.one_ways(&file, &nodes, tun.as_ref(), (&listen, one_way_memory));
        if let (Some(kernel), true) = (&file.kernel_routes, file.neighbours.is_empty()) {
            self.book.complain(
                kernel.table.span(),
                "[kernel-routes]",
                "there is no neighbour that a route could lead over: add a [[neighbour]]",
            );
        }
        let limits = &file.limits;
        let limits = Limits {
            memory: self.size(limits.memory.as_ref(), "[limits] memory", defaults.node_memory),
            flow_memory: self.size(limits.flow_memory.as_ref(), "[limits] flow-memory", defaults.flow_memory),
            relayed_flows: self.count(limits.relayed_flows.as_ref(), "[limits] relayed-flows", RelayLimits::default().flows),
            links: self.count(limits.links.as_ref(), "[limits] links", defaults.max_links),
            sessions: self.count(limits.sessions.as_ref(), "[limits] sessions", defaults.max_sessions),
            trees: self.count(limits.trees.as_ref(), "[limits] trees", MAX_TREES),
            one_way_memory,
        };
        if let (Some(given), true) = (&file.limits.flow_memory, limits.flow_memory > limits.memory) {
            self.book.complain(
                given.span(),
                "[limits] flow-memory",
                "one flow may not have more than all together: lower it, or raise memory",
            );
        }
        let metrics = file.metrics.as_ref().and_then(|m| {
            let listen = match &m.listen {
                Some(listen) => self.place(listen, "[metrics] listen", Ipv4Addr::LOCALHOST.into(), METRICS_PORT)?,
                None => SocketAddr::from((Ipv4Addr::LOCALHOST, METRICS_PORT)),
            };
            Some(MetricsConfig { listen, names: m.names.clone() })
        });
        Some(Config {
            name: node.name.as_ref().map_or_else(hostname, |n| n.get_ref().clone()),
            key: self.path(&node.key),
            listen,
            addresses,
            relay: node.relay,
            answer: node.answer.as_ref().map_or(Answer::Known, |a| self.answer(a)),
            psk: node.psk.as_ref().and_then(|p| self.psk(p, "[node] psk")),
            congestion: congestion.unwrap_or(CongestionControl::Model),
            keep_alive: node.keep_alive.as_ref().map(|t| self.time(Some(t), "[node] keep-alive", defaults.idle_timeout / 3)),
            idle_timeout: self.time(node.idle_timeout.as_ref(), "[node] idle-timeout", defaults.idle_timeout),
            nodes,
            routes,
            kernel_routes: file.kernel_routes.as_ref().map(|k| self.kernel(k)),
            one_ways,
            state: node.state.as_ref().map_or_else(|| PathBuf::from(DEFAULT_STATE), |s| self.path(s)),
            tun,
            limits,
            control: file.control.socket.as_ref().map_or_else(|| PathBuf::from(super::super::control::DEFAULT_SOCKET), |s| self.path(s)),
            metrics,
        })
    }

    fn nodes(&mut self, file: &File, own: &[IpAddr]) -> Vec<RemoteNode> {
        let mut nodes = Vec::new();
        let mut seen = Seen::default();
        for address in own {
            seen.addresses.insert(*address, "this node ([node] addresses)".to_owned());
        }
        for (i, n) in file.neighbours.iter().enumerate() {
            let NeighbourTable { name, key, endpoint, paths, addresses, prefixes, next_hops, psk, mtu } = n;
            let table = format!("[[neighbour]] {:?}", name.get_ref());
            let base = self.remote(&mut seen, &table, (name, key), (addresses, prefixes), mtu.as_ref());
            let endpoint = endpoint.as_ref().and_then(|e| {
                let host = match host_port(e.get_ref(), None) {
                    Ok(host) => host,
                    Err(wrong) => {
                        self.book.complain(
                            e.span(),
                            format!("{table} endpoint"),
                            format!("{wrong}; leave the key out if this neighbour calls"),
                        );
                        return None;
                    }
                };
                if let Some(first) = file.neighbours[..i]
                    .iter()
                    .filter_map(|o| o.endpoint.as_ref().map(|oe| (o, oe)))
                    .find(|(_, oe)| host_port(oe.get_ref(), None).is_ok_and(|o| o == host))
                {
                    let text =
                        format!("{host} is the endpoint of {:?} too: two neighbours cannot answer at one address", first.0.name.get_ref());
                    self.book.complain(e.span(), format!("{table} endpoint"), text);
                }
                Some(host)
            });
            if let (Some(first), None) = (paths.first(), &endpoint) {
                let text = "further paths are made by the node that calls: give an endpoint, or name the paths in the neighbour's file";
                self.book.complain(first.span(), format!("{table} paths"), text);
            }
            if let Some(beyond) = paths.get(MAX_PATHS - 1) {
                let text = format!("a link has {MAX_PATHS} paths at most, the endpoint's own included");
                self.book.complain(beyond.span(), format!("{table} paths"), text);
            }
            let mut further = Vec::new();
            for path in paths {
                match path.get_ref().parse() {
                    Ok(path) => further.push(path),
                    Err(error) => self.book.complain(path.span(), format!("{table} paths"), error),
                }
            }
            let next_hops = self.addresses(next_hops, &format!("{table} next-hops"));
            if let Some(base) = base {
                nodes.push(RemoteNode {
                    link: Some(LinkConfig {
                        endpoint,
                        paths: further,
                        next_hops,
                        psk: psk.as_ref().and_then(|p| self.psk(p, &format!("{table} psk"))),
                    }),
                    ..base
                });
            }
        }
        self.endpoints_outside_the_tunnel(file, &nodes);
        for r in &file.remotes {
            let RemoteTable { name, key, addresses, prefixes, mtu } = r;
            let table = format!("[[remote]] {:?}", name.get_ref());
            if addresses.is_empty() {
                self.book.complain(
                    name.span(),
                    &table,
                    "a node that is reached over others needs addresses = [\"…\"], its own in the overlay",
                );
            }
            nodes.extend(self.remote(&mut seen, &table, (name, key), (addresses, prefixes), mtu.as_ref()));
        }
        nodes
    }

    /// An address of the overlay exists only once there are links. (What lies behind other nodes may hold an endpoint: the node's own packets do not go in.)
    fn endpoints_outside_the_tunnel(&mut self, file: &File, nodes: &[RemoteNode]) {
        if file.tun.is_none() {
            return;
        }
        for n in &file.neighbours {
            let Some(endpoint) = &n.endpoint else { continue };
            let Some(at) = host_port(endpoint.get_ref(), None).ok().and_then(|host| parse_address(&host).ok()) else { continue };
            if let Some(node) = nodes.iter().find(|node| node.addresses.contains(&at.ip())) {
                let text = format!(
                    "{} is the address of {:?} in the overlay, which exists only once there is a link: name the one that it has outside",
                    at.ip(),
                    node.name
                );
                self.book.complain(endpoint.span(), format!("[[neighbour]] {:?} endpoint", n.name.get_ref()), text);
            }
        }
    }

    fn remote(
        &mut self,
        seen: &mut Seen,
        table: &str,
        (name, key): (&Text, &Text),
        (addresses, prefixes): (&[Text], &[Text]),
        mtu: Option<&Spanned<u16>>,
    ) -> Option<RemoteNode> {
        if let Some(line) = seen.names.insert(name.get_ref().clone(), self.book.line(name.span().start)) {
            self.book.complain(
                name.span(),
                table,
                format!("the name is taken by the node in line {line}: names tell nodes apart, choose another"),
            );
        }
        let parsed = self.parse::<PublicKey>(key, &format!("{table} key"), "; `noctule keygen --fingerprint` prints a node's public key");
        if let Some(parsed) = parsed
            && let Some(other) = seen.keys.insert(parsed.0, name.get_ref().clone())
        {
            self.book.complain(
                key.span(),
                format!("{table} key"),
                format!("{other:?} has the same key: a node is named once, with all its addresses and prefixes"),
            );
        }
        let list = self.addresses(addresses, &format!("{table} addresses"));
        for (address, text) in list.iter().zip(addresses) {
            if let Some(other) = seen.addresses.insert(*address, format!("{:?}", name.get_ref())) {
                self.book.complain(
                    text.span(),
                    format!("{table} addresses"),
                    format!("{address} belongs to {other} already: an address leads to one node"),
                );
            }
        }
        let key_of_prefixes = format!("{table} prefixes");
        let mut nets = Vec::new();
        for text in prefixes {
            let Some(net) = self.prefix(text, &key_of_prefixes) else { continue };
            if let Some(other) = seen.prefixes.insert(net, name.get_ref().clone()) {
                self.book.complain(
                    text.span(),
                    &key_of_prefixes,
                    format!("{net} lies behind {other:?} already: leave it out at one of the two"),
                );
            }
            nets.push(net);
        }
        let mtu = mtu.and_then(|m| self.mtu(m, &format!("{table} mtu")));
        Some(RemoteNode { name: name.get_ref().clone(), key: parsed?, addresses: list, prefixes: nets, mtu, link: None })
    }

    fn routes(&mut self, file: &File, nodes: &[RemoteNode], own: &[IpAddr]) -> Vec<StaticRoute> {
        let mut routes: Vec<StaticRoute> = Vec::new();
        for r in &file.routes {
            let to = self.prefix(&r.to, "[[route]] to");
            let named = file.neighbours.iter().find(|n| n.name.get_ref() == r.via.get_ref());
            let Some(named) = named else {
                let is_remote = file.remotes.iter().any(|n| n.name.get_ref() == r.via.get_ref());
                let names: Vec<&str> = file.neighbours.iter().map(|n| n.name.get_ref().as_str()).collect();
                let text = match is_remote {
                    true => format!(
                        "{:?} is a [[remote]], which is reached over others itself: a route leads over a neighbour ({})",
                        r.via.get_ref(),
                        names.join(", ")
                    ),
                    false => format!(
                        "there is no neighbour {:?}; those of this file: {}",
                        r.via.get_ref(),
                        if names.is_empty() { "none".to_owned() } else { names.join(", ") }
                    ),
                };
                self.book.complain(r.via.span(), "[[route]] via", text);
                continue;
            };
            let (Some(to), Some(via)) = (to, nodes.iter().find(|n| &n.name == named.name.get_ref())) else { continue };
            if let Some(address) = own.iter().find(|a| to == IpNet::from(**a)) {
                self.book.complain(
                    r.to.span(),
                    "[[route]] to",
                    format!("{address} is this node's own address: a route to it over a neighbour would loop; remove it"),
                );
            }
            if routes.iter().any(|o| o.to == to && o.via == via.key) {
                self.book.complain(
                    r.to.span(),
                    "[[route]] to",
                    format!("there is a route to {to} via {:?} already: remove one", r.via.get_ref()),
                );
            }
            routes.push(StaticRoute { to, via: via.key, metric: r.metric });
        }
        // A remote without a route would never be reached; the kernel's table may have one.
        if file.kernel_routes.is_none() {
            for r in &file.remotes {
                let Some(node) = nodes.iter().find(|n| &n.name == r.name.get_ref()) else { continue };
                // One direction alone is legal, and needs no route.
                if one_way::is_named(file, &node.name) {
                    continue;
                }
                if !node.addresses.is_empty() && !node.addresses.iter().any(|a| routes.iter().any(|route| route.to.contains(a))) {
                    let text = "no [[route]] leads to any of its addresses: add one, follow a routing daemon with [kernel-routes], or name the node in a [[one-way]]";
                    self.book.complain(r.name.span(), format!("[[remote]] {:?}", node.name), text);
                }
            }
        }
        routes
    }

    fn kernel(&mut self, kernel: &KernelTable) -> KernelRoutes {
        if *kernel.table.get_ref() == 0 {
            self.book.complain(kernel.table.span(), "[kernel-routes] table", "tables have numbers from 1; the main one is 254");
        }
        KernelRoutes { table: *kernel.table.get_ref(), interface: kernel.interface.as_ref().map(|i| i.get_ref().clone()) }
    }

    fn tun(&mut self, tun: &TunTable) -> Option<TunConfig> {
        let name = tun.name.as_ref().map_or("noctule0", |n| n.get_ref());
        // IFNAMSIZ less the terminator; the kernel refuses '/' and spaces.
        if let Some(given) = &tun.name
            && (name.is_empty() || name.len() > 15 || name.contains(['/', ':', '%']) || name.contains(char::is_whitespace))
        {
            self.book.complain(
                given.span(),
                "[tun] name",
                format!("{name:?} is no device name: 1 to 15 characters without '/', ':', '%' and spaces"),
            );
        }
        let mtu = tun.mtu.as_ref().map_or(Some(DEFAULT_MTU), |m| self.mtu(m, "[tun] mtu"))?;
        let addresses: Vec<IpNet> = tun.addresses.iter().filter_map(|a| self.prefix_of_host(a, "[tun] addresses")).collect();
        if let (true, Some(first)) = (mtu < MIN_MTU, tun.addresses.iter().zip(&addresses).find(|(_, a)| matches!(a, IpNet::V6(_)))) {
            self.book.complain(first.0.span(), "[tun] addresses", format!("IPv6 needs an MTU of {MIN_MTU} bytes at least, mtu is {mtu}"));
        }
        let treatment = Treatment {
            datagram_lifetime: self.time(tun.datagram_lifetime.as_ref(), "[tun] datagram-lifetime", Duration::from_millis(500)),
            tcp_lifetime: self.time(tun.tcp_lifetime.as_ref(), "[tun] tcp-lifetime", Duration::from_secs(2)),
            flow_idle: self.time(tun.flow_idle.as_ref(), "[tun] flow-idle", Duration::from_secs(60)),
            max_flows: self.count(tun.max_flows.as_ref(), "[tun] max-flows", 1024),
        };
        let lan = tun.lan.as_ref().and_then(|l| self.lan(l));
        let tcp = tun.tcp.as_ref().map_or(TunTcp::Carry, |t| self.tun_tcp(t));
        if let (Some(given), TunTcp::Split, true) = (&tun.name, tcp, name.contains(['"', '\\', '*'])) {
            let what =
                format!("{name:?} cannot stand in the firewall's rules that tcp = \"split\" needs: choose a name without quotes, \\ and *");
            self.book.complain(given.span(), "[tun] name", what);
        }
        Some(TunConfig { name: name.to_owned(), mtu, addresses, install_routes: tun.install_routes.unwrap_or(true), lan, tcp, treatment })
    }

    // --- single values ---------------------------------------------------------------------------------------------------------

    /// A node has links with its neighbours only, which know its key: strangers need not learn that it is there.
    fn answer(&mut self, text: &Text) -> Answer {
        match text.get_ref().as_str() {
            "known" => Answer::Known,
            "anyone" => Answer::Anyone,
            other => {
                let what = format!("{other:?} is neither \"known\" (those that know this node's public key) nor \"anyone\"");
                self.book.complain(text.span(), "[node] answer", what);
                Answer::Known
            }
        }
    }

    fn tun_tcp(&mut self, text: &Text) -> TunTcp {
        match text.get_ref().as_str() {
            "carry" => TunTcp::Carry,
            "split" => TunTcp::Split,
            other => {
                let what = format!("{other:?} is neither \"carry\" (as packets) nor \"split\" (each connection as a stream)");
                self.book.complain(text.span(), "[tun] tcp", what);
                TunTcp::Carry
            }
        }
    }

    fn lan(&mut self, text: &Text) -> Option<Lan> {
        match text.get_ref().as_str() {
            "bypass" => Some(Lan::Bypass),
            "private" => Some(Lan::Private),
            "tunnel" => Some(Lan::Tunnel),
            other => {
                let what = format!(
                    "{other:?} is none of \"bypass\" (networks that the main table knows better stay outside), \"private\" (attached private networks do) and \"tunnel\" (none does)"
                );
                self.book.complain(text.span(), "[tun] lan", what);
                None
            }
        }
    }

    fn parse<T: FromStr<Err: std::fmt::Display>>(&mut self, text: &Text, key: &str, hint: &str) -> Option<T> {
        match text.get_ref().parse() {
            Ok(value) => Some(value),
            Err(error) => {
                self.book.complain(text.span(), key, format!("{error}{hint}"));
                None
            }
        }
    }

    fn addresses(&mut self, texts: &[Text], key: &str) -> Vec<IpAddr> {
        texts
            .iter()
            .filter_map(|text| {
                let address: Option<IpAddr> = text.get_ref().parse().ok().filter(|a: &IpAddr| !a.is_unspecified() && !a.is_multicast());
                if address.is_none() {
                    self.book.complain(
                        text.span(),
                        key,
                        format!(
                            "{:?} is not the address of a node: write it as 10.9.0.1 or fd09::1, without a prefix length",
                            text.get_ref()
                        ),
                    );
                }
                address
            })
            .collect()
    }

    /// A prefix; a bare address is the prefix of itself.
    fn prefix(&mut self, text: &Text, key: &str) -> Option<IpNet> {
        let net = match text.get_ref().parse::<IpAddr>() {
            Ok(address) => Some(IpNet::from(address)),
            Err(_) => text.get_ref().parse::<IpNet>().ok(),
        };
        match net {
            None => {
                self.book.complain(
                    text.span(),
                    key,
                    format!("{:?} is not a prefix: write it as 10.9.2.0/24, fd09:2::/64 or 10.9.0.2", text.get_ref()),
                );
                None
            }
            Some(net) if net != net.trunc() => {
                self.book.complain(
                    text.span(),
                    key,
                    format!("{net} has bits beyond its length: did you mean {} or {}?", net.trunc(), IpNet::from(net.addr())),
                );
                None
            }
            net => net,
        }
    }

    fn prefix_of_host(&mut self, text: &Text, key: &str) -> Option<IpNet> {
        match text.get_ref().parse::<IpNet>() {
            Ok(net) => Some(net),
            Err(_) => {
                self.book.complain(
                    text.span(),
                    key,
                    format!("{:?} is not an address with its prefix length: write it as 10.9.0.1/24 or fd09::1/64", text.get_ref()),
                );
                None
            }
        }
    }

    /// A place to listen, by the rule of `--bind`; where only a port is written, the address is `any`.
    fn place(&mut self, text: &Text, key: &str, any: IpAddr, port: u16) -> Option<SocketAddr> {
        let places = text.get_ref().parse::<Listen>().and_then(|listen| Ok((listen.ip(), listen.places_or(port)?)));
        match places {
            Ok((None, places)) => places.first().map(|at| SocketAddr::new(any, at.port())),
            Ok((Some(_), places)) => places.first().copied(),
            Err(wrong) => {
                self.book.complain(text.span(), key, wrong);
                None
            }
        }
    }

    /// The addresses to listen on: one, or different ones of this host.
    fn listen(&mut self, listen: &Spanned<OneOrMore>) -> Vec<SocketAddr> {
        const KEY: &str = "[node] listen";
        let texts = listen.get_ref().texts(listen.span());
        if texts.is_empty() {
            self.book.complain(
                listen.span(),
                KEY,
                "an empty list is no place to listen: name an address, or leave the key out for [::]:4242",
            );
        }
        let mut found: Vec<SocketAddr> = Vec::new();
        for text in &texts {
            let Some(address) = self.place(text, KEY, Ipv6Addr::UNSPECIFIED.into(), DEFAULT_PORT) else { continue };
            if let Some(other) = found.iter().find(|other| other.ip() == address.ip()) {
                let wrong = format!(
                    "{address} beside {other}: each address once, with one port, so that a neighbour is answered from where it called"
                );
                self.book.complain(text.span(), KEY, wrong);
            }
            if texts.len() > 1 && address.ip().is_unspecified() {
                let wrong =
                    format!("{} is every address of this host already: write it alone, or name single addresses only", address.ip());
                self.book.complain(text.span(), KEY, wrong);
            }
            found.push(address);
        }
        found
    }

    fn mtu(&mut self, mtu: &Spanned<u16>, key: &str) -> Option<u16> {
        let value = *mtu.get_ref();
        if (576..=MAX_MTU).contains(&value) {
            return Some(value);
        }
        self.book.complain(
            mtu.span(),
            key,
            format!("{value} bytes are out of range: 576 to {MAX_MTU}, at least {MIN_MTU} for IPv6; the default is {DEFAULT_MTU}"),
        );
        None
    }

    fn time(&mut self, text: Option<&Text>, key: &str, default: Duration) -> Duration {
        let Some(text) = text else { return default };
        let time = self.parse::<Span>(text, key, "").map_or(default, |s| s.0);
        if time.is_zero() {
            self.book.complain(text.span(), key, "a time above zero is needed");
        }
        time
    }

    fn size(&mut self, text: Option<&Text>, key: &str, default: usize) -> usize {
        let Some(text) = text else { return default };
        let value = text.get_ref();
        let at = value.find(|c: char| !c.is_ascii_digit()).unwrap_or(value.len());
        let factor = match value[at..].trim() {
            "" | "B" => Some(1usize),
            "KiB" => Some(1 << 10),
            "MiB" => Some(1 << 20),
            "GiB" => Some(1 << 30),
            _ => None,
        };
        match value[..at].parse::<usize>().ok().zip(factor).and_then(|(n, f)| n.checked_mul(f)).filter(|bytes| *bytes >= 1 << 20) {
            Some(bytes) => bytes,
            None => {
                self.book.complain(text.span(), key, format!("{value:?} is not a size of at least 1 MiB: write it as 64MiB or 1GiB"));
                default
            }
        }
    }

    fn count(&mut self, count: Option<&Spanned<usize>>, key: &str, default: usize) -> usize {
        let Some(count) = count else { return default };
        if !(1..=1 << 20).contains(count.get_ref()) {
            self.book.complain(count.span(), key, format!("{} is out of range: 1 to {}", count.get_ref(), 1 << 20));
        }
        *count.get_ref()
    }

    /// The pre-shared key in a file.
    fn psk(&mut self, text: &Text, key: &str) -> Option<SharedKey> {
        match identity::shared_key(&self.path(text)) {
            Ok(psk) => Some(psk),
            Err(error) => {
                let wrong = format!("{error}; `noctule keygen --shared -o FILE` makes such a key, and both ends of the link need the same");
                self.book.complain(text.span(), key, wrong);
                None
            }
        }
    }

    fn path(&self, text: &Text) -> PathBuf {
        self.base.join(text.get_ref())
    }
}

/// What earlier nodes of the file have claimed.
#[derive(Default)]
struct Seen {
    /// Name to line.
    names: HashMap<String, usize>,
    keys: HashMap<[u8; 32], String>,
    addresses: HashMap<IpAddr, String>,
    prefixes: HashMap<IpNet, String>,
}

fn hostname() -> String {
    // Not from /proc, which a service need not see.
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    if name.is_empty() { "node".to_owned() } else { name }
}
