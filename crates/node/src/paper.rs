//! Man pages and completions, from the same definitions as `--help`.

use crate::cli::{Cli, CompletionsArgs, ManArgs};
use crate::failure::Failure;
use clap::{Command, CommandFactory};
use std::io;
use std::path::Path;

/// `noctule man`: noctule.1 and one page per command.
pub fn man(args: &ManArgs) -> Result<(), Failure> {
    std::fs::create_dir_all(&args.directory).map_err(|e| Failure::target(&args.directory, &e))?;
    let mut command = Cli::command();
    command.build();
    write_page(&args.directory, &command, "noctule")?;
    for sub in command.get_subcommands().filter(|c| !c.is_hide_set() && c.get_name() != "help") {
        write_page(&args.directory, sub, &format!("noctule-{}", sub.get_name()))?;
    }
    Ok(())
}

fn write_page(directory: &Path, command: &Command, name: &str) -> Result<(), Failure> {
    let path = directory.join(format!("{name}.1"));
    let failed = |e: io::Error| Failure::target(&path, &e);
    let mut page = Vec::new();
    clap_mangen::Man::new(command.clone()).title(name.to_uppercase()).render(&mut page).map_err(failed)?;
    std::fs::write(&path, page).map_err(failed)
}

/// `noctule completions`.
pub fn completions(args: &CompletionsArgs) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "noctule", &mut script);
    io::Write::write_all(&mut io::stdout(), &script).map_err(|e| Failure::system("cannot write to standard output", e))
}
