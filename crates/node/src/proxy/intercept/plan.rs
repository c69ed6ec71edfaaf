//! What rules are to do, whatever program they are written for.

use crate::cli::intercept::{Exclusion, Fail, InterceptArgs, Scope, TcpBy, UdpBy};
use ipnet::IpNet;
use noctule_proxy::{Diversion, Interception};
use std::net::IpAddr;

/// Targets that are never intercepted: this network, loopback, link-local, multicast and reserved addresses (RFC 6890).
const NEVER: [&str; 9] =
    ["0.0.0.0/8", "127.0.0.0/8", "169.254.0.0/16", "224.0.0.0/4", "240.0.0.0/4", "::/128", "::1/128", "fe80::/10", "ff00::/8"];
/// RFC 1918, RFC 6598, RFC 4193.
const PRIVATE: [&str; 5] = ["10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "fc00::/7"];

/// See the file's heading.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Programs of this host.
    pub own: bool,
    /// What is forwarded, of these devices; `Some` of none: of every device.
    pub clients: Option<Vec<String>>,
    /// Connections.
    pub tcp: Option<Diversion>,
    /// Datagrams.
    pub udp: bool,
    /// Where all of it is diverted to.
    pub port: u16,
    /// Targets that are left alone.
    pub nets: Vec<IpNet>,
    /// Ports of targets that are left alone.
    pub ports: Vec<(u16, u16)>,
    /// Users whose programs are left alone.
    pub users: Vec<u32>,
    /// Control groups whose programs are left alone.
    pub cgroups: Vec<String>,
    /// Rules go when this process does.
    pub fails_open: bool,
}

impl Plan {
    /// From the options; `servers`: addresses of the proxy's server.
    ///
    /// # Errors
    /// They contradict each other, in words for the user.
    pub fn new(args: &InterceptArgs, servers: &[IpAddr]) -> Result<Self, String> {
        let own = args.intercept.contains(&Scope::Own);
        let mut clients: Option<Vec<String>> = None;
        let mut is_every = false;
        for scope in &args.intercept {
            if let Scope::Clients(device) = scope {
                is_every |= device.is_none();
                clients.get_or_insert_default().extend(device.clone());
            }
        }
        if is_every {
            clients = Some(Vec::new());
        }
        let tcp = match args.intercept_tcp {
            TcpBy::Tproxy => Some(Diversion::Tproxy),
            TcpBy::Redirect => Some(Diversion::Redirect),
            TcpBy::No => None,
        };
        let udp = args.intercept_udp == UdpBy::Tproxy;
        if tcp.is_none() && !udp {
            return Err("nothing to intercept: --intercept-tcp is no, and so is --intercept-udp".into());
        }
        let parse = |text: &&str| text.parse::<IpNet>().expect("a constant");
        let mut plan = Self {
            own,
            clients,
            tcp,
            udp,
            port: args.intercept_port,
            nets: NEVER.iter().map(parse).collect(),
            ports: Vec::new(),
            users: Vec::new(),
            cgroups: Vec::new(),
            fails_open: args.fail == Fail::Open,
        };
        plan.nets.extend(servers.iter().map(|ip| IpNet::from(ip.to_canonical())));
        for exclusion in &args.excluded {
            match exclusion {
                Exclusion::Net(net) => plan.nets.push(*net),
                Exclusion::Private => plan.nets.extend(PRIVATE.iter().map(parse)),
                Exclusion::Ports(first, last) => plan.ports.push((*first, *last)),
                Exclusion::User(number) => plan.users.push(*number),
                Exclusion::Cgroup(path) => plan.cgroups.push(path.clone()),
            }
        }
        let has_programs = !plan.users.is_empty() || !plan.cgroups.is_empty();
        if has_programs && !own {
            return Err("--exclude user: and cgroup: are about programs of this host, which --intercept clients does not touch".into());
        }
        // The same twice, or one within another, is an error to nft.
        plan.nets = IpNet::aggregate(&plan.nets);
        Ok(plan)
    }

    /// The sockets that belong to it.
    pub fn interception(&self) -> Interception {
        Interception { port: self.port, tcp: self.tcp, udp: self.udp, clients: self.clients.is_some() }
    }

    /// Transport protocols that go by TPROXY.
    pub fn by_tproxy(&self) -> Vec<&'static str> {
        let tcp = (self.tcp == Some(Diversion::Tproxy)).then_some("tcp");
        tcp.into_iter().chain(self.udp.then_some("udp")).collect()
    }

    /// TCP goes by REDIRECT.
    pub fn redirects(&self) -> bool {
        self.tcp == Some(Diversion::Redirect)
    }

    /// The nets of one family.
    pub fn nets_of(&self, is_v4: bool) -> impl Iterator<Item = &IpNet> {
        self.nets.iter().filter(move |net| net.addr().is_ipv4() == is_v4)
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::cli::{Cli, Command};
    use clap::Parser;

    /// The plan of a command line.
    pub fn plan(words: &str) -> Result<Plan, String> {
        let line = format!("noctule proxy hill {words}");
        let cli = Cli::try_parse_from(line.split_whitespace()).map_err(|e| e.to_string())?;
        let Command::Proxy(args) = cli.command else { unreachable!() };
        Plan::new(&args.intercept, &["192.0.2.7".parse().unwrap()])
    }

    #[test]
    fn options_become_a_plan_and_contradictions_are_told() {
        let found =
            plan("--intercept own --intercept clients:br0 --intercept clients:br1 --exclude private --exclude 10.1.0.0/16").unwrap();
        assert_eq!(found.clients, Some(vec!["br0".into(), "br1".into()]));
        assert!(found.nets.contains(&"192.0.2.7/32".parse().unwrap()), "the server is left alone");
        assert!(!found.nets.contains(&"10.1.0.0/16".parse().unwrap()), "it is within another");
        assert_eq!(plan("--intercept clients:br0 --intercept clients").unwrap().clients, Some(vec![]));
        for (words, told) in [
            ("--intercept own --intercept-tcp no", "nothing to intercept"),
            ("--intercept clients --exclude user:0", "programs of this host"),
            ("--exclude port:22", "--intercept"),
            ("--intercept mine", "write own, clients"),
            ("--intercept own --intercept-port 0", "0 is not in"),
        ] {
            let error = plan(words).unwrap_err();
            assert!(error.contains(told), "{words}: {error}");
        }
    }
}
