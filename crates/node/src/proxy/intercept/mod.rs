//! Interception: rules of the system's firewall that divert connections and datagrams to this process, and `noctule proxy rules`, which prints them.

mod install;
mod iptables;
mod nft;
mod plan;

pub use crate::divert::OWN_MARK;
pub use install::{Rules, permitted};
pub use plan::Plan;

use crate::cli::ProxyRulesArgs;
use crate::cli::intercept::Fail;
use crate::daemon::OUR_PROTOCOL;
use crate::divert::{PROXY_MARK, Policy};
use crate::failure::Failure;
use std::net::IpAddr;
use tokio::net::lookup_host;

/// Leads diverted packets to this host, before the rules of a node's tunnel (5110, 5111).
const POLICY: Policy = Policy { mark: PROXY_MARK, priority: 5109, table: 0x6e70_0001 };

/// Prints the rules, or takes away those that a killed proxy left.
pub async fn rules(args: ProxyRulesArgs) -> Result<(), Failure> {
    if args.remove {
        permitted()?;
        let _lock = install::lock()?;
        match install::take_over().await? {
            true => note!("the rules and the routing that a killed proxy left are gone"),
            false => note!("there were no rules and no routing of noctule proxy"),
        }
        return Ok(());
    }
    if args.intercept.intercept.is_empty() {
        return Err(Failure::Usage("whose connections? say --intercept own, --intercept clients, or both".into()));
    }
    if args.intercept.fail == Fail::Open {
        return Err(Failure::Usage(
            "rules that are printed stay until they are taken away; --fail open is for noctule proxy itself".into(),
        ));
    }
    let servers = match &args.host {
        Some(host) => addresses(host).await?,
        None => Vec::new(),
    };
    let plan = Plan::new(&args.intercept, &servers).map_err(Failure::Usage)?;
    let text = if args.iptables { iptables::script(&plan) } else { by_hand(&plan) };
    say!("{}", text.trim_end());
    Ok(())
}

/// The table for nft, and what else TPROXY needs.
fn by_hand(plan: &Plan) -> String {
    let mut text = String::from("# Rules of noctule proxy, for nft -f; to take all of it away: noctule proxy rules --remove\n");
    if !plan.by_tproxy().is_empty() {
        text.push_str("# TPROXY needs these, too:\n");
        for ip in ["ip", "ip -6"] {
            let Policy { mark, priority, table } = POLICY;
            let protocol = u8::from(OUR_PROTOCOL);
            text.push_str(&format!("#   {ip} rule add fwmark {mark:#x} lookup {table} priority {priority} protocol {protocol}\n"));
            text.push_str(&format!("#   {ip} route add local default dev lo table {table} proto {protocol}\n"));
        }
    }
    text + &nft::table(plan).script(false)
}

/// Addresses of the proxy's server.
async fn addresses(host: &str) -> Result<Vec<IpAddr>, Failure> {
    let parsed: crate::address::HostPort = host.parse().map_err(Failure::Usage)?;
    let name = parsed.host();
    let found = lookup_host((name.trim_matches(['[', ']']), 0)).await;
    let found: Vec<IpAddr> = found.map_err(|e| Failure::Resolve(format!("{name}: {e}")))?.map(|at| at.ip()).collect();
    Ok(found)
}
