//! Drops rights of the process before it reads a byte from the network.

use crate::daemon::config::{Config, OneWay};
use rustix::process::{DumpableBehavior, Resource, Rlimit, set_dumpable_behavior, setrlimit};
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, clear_ambient_capability_set, configure_capability_in_ambient_set, set_capabilities,
    set_no_new_privs,
};

/// The program nft, by which a node diverts TCP, needs this one, too.
const PASSED_ON: CapabilitySet = CapabilitySet::NET_ADMIN;

/// For every command: no core file and no debugger of the same user shows its keys, and no program that it starts gains rights.
/// Errors are ignored: if a kernel refuses one of these, the process is as other programs are.
pub fn every_process() {
    let _ = setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) });
    let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
    let _ = set_no_new_privs(true);
}

/// The capabilities that a node with this file needs, beyond the rights of its user.
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
        // For root only: started by hand, it must read the key file of the node's user. Root can write its own files anyway, so this adds little.
        needed |= CapabilitySet::DAC_OVERRIDE;
    }
    needed
}

/// Gives up all other capabilities. Call it while the process has one thread: new threads inherit the capabilities of the one that starts them.
///
/// # Errors
/// The system refuses to take capabilities away.
pub fn keep_only(needed: CapabilitySet) -> rustix::io::Result<()> {
    clear_ambient_capability_set()?;
    let has = capabilities(None)?;
    let kept = has.permitted & needed;
    let inheritable = kept & PASSED_ON;
    // A systemd unit may have done it already, and forbid the call.
    if has.permitted != kept || has.inheritable != inheritable {
        set_capabilities(None, CapabilitySets { effective: kept, permitted: kept, inheritable })?;
    }
    if !inheritable.is_empty() && !rustix::process::geteuid().is_root() {
        configure_capability_in_ambient_set(inheritable, true)?;
    }
    Ok(())
}

/// From here on a panic of any task ends the process, so that its supervisor starts it again. Exit code 1, as for every defect.
/// A daemon of which one task has died would look alive, and carry nothing.
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
