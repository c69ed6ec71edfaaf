//! What a process gives up before it reads a byte from the network.

use crate::daemon::config::{Config, OneWay};
use rustix::process::{DumpableBehavior, Resource, Rlimit, set_dumpable_behavior, setrlimit};
use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, clear_ambient_capability_set, set_capabilities, set_no_new_privs};

/// Every command: no core file and no debugger of the same user sees its keys, and no program that it starts gains rights.
/// A kernel that refuses one of these leaves things as they are everywhere else.
pub fn every_process() {
    let _ = setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) });
    let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
    let _ = set_no_new_privs(true);
}

/// What a node of this file needs of the system beyond the rights of its user.
pub fn needed(config: &Config) -> CapabilitySet {
    let mut needed = CapabilitySet::empty();
    if config.tun.is_some() {
        // The device, its addresses, and routes that follow peers for as long as the node runs.
        needed |= CapabilitySet::NET_ADMIN;
    }
    let one_ways = config.one_ways.iter().filter_map(|one_way| match one_way {
        OneWay::To(_) => None,
        OneWay::From(from) => Some(from.listen),
        OneWay::Relay(relay) => Some(relay.listen),
    });
    let metrics = config.metrics.as_ref().map(|m| m.listen);
    if config.listen.iter().copied().chain(one_ways).chain(metrics).any(|at| (1..1024).contains(&at.port())) {
        needed |= CapabilitySet::NET_BIND_SERVICE;
    }
    if rustix::process::geteuid().is_root() {
        // Root writes files of its own anyway, so it gains nothing by this; started by hand it must read the key of the node's user.
        needed |= CapabilitySet::DAC_OVERRIDE;
    }
    needed
}

/// Gives up every other capability. To be called while the process has one thread: threads inherit what the one that starts them has.
///
/// # Errors
/// The system refuses to take capabilities away.
pub fn keep_only(needed: CapabilitySet) -> rustix::io::Result<()> {
    clear_ambient_capability_set()?;
    let has = capabilities(None)?;
    let kept = has.permitted & needed;
    if has.permitted == kept && has.inheritable.is_empty() {
        // A unit may have seen to it, and forbid the call.
        return Ok(());
    }
    set_capabilities(None, CapabilitySets { effective: kept, permitted: kept, inheritable: CapabilitySet::empty() })
}

/// A daemon with a part of it dead looks alive to its supervisor and carries nothing: a panic of any task ends the process, which is started again.
/// Exit code 1, as for every defect.
pub fn end_at_a_panic() {
    let print = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        print(panic);
        std::process::exit(1);
    }));
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    /// Runs one of the tests below, which are ignored otherwise, in a process of its own.
    fn alone(test: &str) -> std::process::ExitStatus {
        let program = std::env::current_exe().expect("a path");
        let name = format!("hardening::tests::{test}");
        Command::new(program).args(["--exact", &name, "--ignored", "--test-threads", "1"]).output().expect("runs").status
    }

    #[test]
    fn a_panic_of_a_task_ends_a_daemon() {
        assert_eq!(alone("panicking_task").code(), Some(1));
    }

    #[test]
    #[ignore = "started by a_panic_of_a_task_ends_a_daemon"]
    fn panicking_task() {
        end_at_a_panic();
        let _ = std::thread::spawn(|| panic!("on purpose")).join();
        // Reached only if the hook does not work: another exit code than that of a failed test.
        std::process::exit(77);
    }

    #[test]
    fn what_is_given_up_is_gone_for_threads_too() {
        assert!(alone("giving_up").success());
    }

    #[test]
    #[ignore = "started by what_is_given_up_is_gone_for_threads_too"]
    fn giving_up() {
        every_process();
        keep_only(CapabilitySet::NET_BIND_SERVICE).expect("taking away is always permitted");
        let status = std::thread::spawn(|| std::fs::read_to_string("/proc/thread-self/status").unwrap()).join().unwrap();
        let field = |name: &str| status.lines().find_map(|l| l.strip_prefix(name)).expect("a field").trim().to_owned();
        for set in ["CapEff:", "CapPrm:", "CapInh:", "CapAmb:"] {
            let bits = u64::from_str_radix(&field(set), 16).unwrap();
            assert_eq!(bits & !CapabilitySet::NET_BIND_SERVICE.bits(), 0, "{set} {bits:#x}");
        }
        assert_eq!(field("NoNewPrivs:"), "1");
        assert_eq!(rustix::process::getrlimit(Resource::Core).current, Some(0));
        assert_eq!(rustix::process::dumpable_behavior(), Ok(DumpableBehavior::NotDumpable));
    }
}
