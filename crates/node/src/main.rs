//! The `noctule` command: files, measurements and keys over network-coded links.

#[macro_use]
mod terminal;

mod address;
mod cli;
mod code;
mod daemon;
mod directories;
mod divert;
mod doctor;
mod failure;
mod further_path;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
mod hardening;
mod host_config;
mod http;
mod identity;
mod invitation;
mod log;
mod overlay;
mod paper;
mod perf;
mod ping;
mod proxy;
mod sandbox;
mod service;
mod shell;
mod silence;
mod threads;
mod transfer;
mod tree;
mod units;
mod whole_file;

use clap::Parser;
use failure::Failure;
use std::process::ExitCode;

/// Time for the last packets after an interruption.
const FAREWELL: std::time::Duration = std::time::Duration::from_millis(100);

fn main() -> ExitCode {
    let line: Vec<_> = std::env::args_os().collect();
    let mut cli = match proxy::words::expand(cli::Cli::parse(), &line) {
        Ok(Some(cli)) => cli,
        Ok(None) => return ExitCode::SUCCESS,
        Err(failure) => {
            failure.print(false);
            return ExitCode::from(failure.exit_code());
        }
    };
    let is_json = cli.has_json_errors();
    match fill_in(&mut cli.command).and_then(|()| run(cli)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            failure.print(is_json);
            ExitCode::from(failure.exit_code())
        }
    }
}

/// Takes over what the user's file of hosts says.
fn fill_in(command: &mut cli::Command) -> Result<(), Failure> {
    match command {
        cli::Command::Send(args) => args.fill_in(),
        cli::Command::Get(args) => args.fill_in(),
        cli::Command::Perf(args) => args.fill_in(),
        cli::Command::Ping(args) => args.fill_in(),
        cli::Command::Doctor(args) => args.fill_in(),
        cli::Command::Proxy(args) => args.fill_in(),
        _ => Ok(()),
    }
}

fn run(cli: cli::Cli) -> Result<(), Failure> {
    hardening::every_process();
    if cli.log.quiet {
        terminal::be_quiet();
    }
    if cli.log.verbose > 0 {
        terminal::be_verbose();
    }
    log::start(&cli.log, cli.command.serves())?;
    sandbox::confine(&cli.command);
    if let cli::Command::Node(args) = &cli.command {
        hardening::end_at_a_panic();
        if args.is_running() {
            // Before the runtime starts its threads, which inherit what this one has.
            let needed = hardening::needed(&daemon::config::Config::read(&args.config)?);
            hardening::keep_only(needed).map_err(|e| Failure::system("cannot give up capabilities", e))?;
        }
    }
    let runtime = threads::runtime()?;
    let result = runtime.block_on(async {
        // A daemon ends on request, and well; a measurement shows what it has.
        let ends_itself = match &cli.command {
            cli::Command::Node(_) | cli::Command::Ping(_) => true,
            cli::Command::Perf(args) => args.client.is_some(),
            _ => false,
        };
        let aftermath = aftermath(&cli.command);
        // As a task: it shares a worker's thread with the driver of its sockets, where this thread would have to be woken for each packet.
        let mut work = tokio::spawn(work(cli));
        tokio::select! {
            result = &mut work => {
                if ends_itself {
                    tokio::time::sleep(FAREWELL).await;
                }
                result.unwrap_or_else(|error| Err(Failure::system("a task", error)))
            }
            () = interrupted(), if !ends_itself => {
                work.abort();
                let _ = work.await;
                // It was dropped: its farewell to the peers is still to be sent.
                tokio::time::sleep(FAREWELL).await;
                Err(Failure::Interrupted(aftermath))
            }
        }
    });
    runtime.shutdown_timeout(std::time::Duration::from_millis(500));
    result
}

async fn work(cli: cli::Cli) -> Result<(), Failure> {
    match cli.command {
        cli::Command::Keygen(args) => identity::keygen::run(&args),
        cli::Command::Send(args) => transfer::send::run(args).await,
        cli::Command::Recv(args) => transfer::recv::run(args).await,
        cli::Command::Serve(args) => transfer::serve::run(args).await,
        cli::Command::Get(args) => transfer::get::run(args).await,
        cli::Command::Perf(args) => perf::run(args).await,
        cli::Command::Ping(args) => ping::run(args).await,
        cli::Command::Proxy(args) => proxy::run(args).await,
        cli::Command::Doctor(args) => doctor::run(args).await,
        cli::Command::Man(args) => paper::man(&args),
        cli::Command::Completions(args) => paper::completions(&args),
        cli::Command::CompleteHosts => {
            paper::hosts();
            Ok(())
        }
        cli::Command::Status(args) => daemon::status(args).await,
        cli::Command::Reload(args) => daemon::reload(args).await,
        cli::Command::Node(args) => daemon::run(args).await,
    }
}

/// What becomes of the work of a command that is interrupted.
fn aftermath(command: &cli::Command) -> &'static str {
    match command {
        cli::Command::Send(args) if !args.one_way => "; what has arrived is kept: run the same command again, and it goes on from there",
        cli::Command::Get(args) if !args.list => "; what has arrived is kept: run the same command again, and it goes on from there",
        cli::Command::Recv(args) if !args.one_way && !args.stdout => {
            "; of a transfer under way what has arrived is kept, and goes on when it is sent again"
        }
        _ => "",
    }
}

/// The result of `work`, unless it is interrupted before.
async fn unless_interrupted<T>(work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    tokio::select! {
        result = work => result,
        () = interrupted() => Err(Failure::Interrupted("")),
    }
}

/// Ctrl-C or a request to terminate.
async fn interrupted() {
    use tokio::signal::unix::{SignalKind, signal};
    match (signal(SignalKind::interrupt()), signal(SignalKind::terminate())) {
        (Ok(mut int), Ok(mut term)) => {
            tokio::select! {
                _ = int.recv() => {}
                _ = term.recv() => {}
            }
        }
        // Without handlers the default action ends the process.
        _ => std::future::pending().await,
    }
}
