//! The command line of `noctule-lab serve`: opens the port, and ends what it started when it ends.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use super::accept::{self, Bounds};
use super::guard::Guard;
use super::routes::{Page, router};
use super::runs::Runs;
use super::store::Store;
use super::tables::Tables;
use crate::files;
use crate::sweep::{Build, Folder};

/// From one look after children to the next. Short beside the seconds that one may take to end, long beside the work of a look.
const TEND: Duration = Duration::from_millis(500);
/// A browser holds up to six connections, so some forty of them are served. That takes a quarter of the 1,024 files that a process may usually open.
/// It opens another where an idle one was closed. The last answers are short; only streams of events would go on, and they end with the server.
const BOUNDS: Bounds = Bounds { connections: 256, head: Duration::from_secs(30), last: Duration::from_secs(2) };
/// How long a disk that does not answer may hold the end of the server.
const LAST_READS: Duration = Duration::from_secs(2);

/// `noctule-lab serve`.
#[derive(Debug, Clone, Args)]
pub struct ServeArgs {
    /// Folder with results, or with folders of results below it; made if it is not there.
    #[arg(default_value = "noctule-results")]
    pub folder: PathBuf,
    /// Address and port. Any but loopback demands a token.
    #[arg(long, value_name = "ADDR", default_value_t = SocketAddr::from((Ipv4Addr::LOCALHOST, 4280)))]
    pub listen: SocketAddr,
    /// What requests have to carry (Authorization: Bearer TOKEN), at least 16 characters; others see it here with ps, not in the variable.
    #[arg(long, env = "NOCTULE_LAB_TOKEN", hide_env_values = true)]
    pub token: Option<String>,
    /// A name under which this server may be asked for, besides IP addresses and localhost. May be given several times.
    #[arg(long)]
    pub name: Vec<String>,
    /// Runs that may be started from the page at the same time; 0: none may.
    #[arg(long, default_value_t = 2, value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(0..=64))]
    pub runs: usize,
    /// Folder with scenario files that may be started from the page.
    #[arg(long, value_name = "DIR")]
    pub scenarios: Option<PathBuf>,
    /// A published table to offer besides those in the program: rate,delay,loss,mbit. May be given several times.
    #[arg(long, value_name = "FILE.csv")]
    pub beside: Vec<PathBuf>,
}

type Failure = Box<dyn std::error::Error>;

impl ServeArgs {
    /// Serves until SIGINT or SIGTERM.
    pub fn execute(&self) -> Result<ExitCode, Failure> {
        let guard = Guard::new(self.listen, self.token.as_deref(), &self.name)?;
        let tables = Tables::new(&self.beside)?;
        for folder in self.scenarios.iter().chain((self.runs == 0).then_some(&self.folder)) {
            files::entries(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
        }
        if self.runs > 0 {
            Folder::open(&self.folder).map_err(|e| format!("{e}; --runs 0 shows a folder that cannot be written"))?;
        }
        let store = Store::new(&self.folder, Build::of_this_program()?);
        // The file that runs, also where another build has taken its name since.
        let runs = Runs::new("/proc/self/exe".as_ref(), self.runs);
        let (end, ends) = watch::channel(false);
        let page = Arc::new(Page::new(store, runs, tables, self.scenarios.clone(), ends));
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        let served = runtime.block_on(self.serve(&page, guard, end));
        // On this thread: those of the runtime may all wait for a disk.
        page.runs.end();
        runtime.shutdown_timeout(LAST_READS);
        served.map(|()| ExitCode::SUCCESS)
    }

    async fn serve(&self, page: &Arc<Page>, guard: Guard, end: watch::Sender<bool>) -> Result<(), Failure> {
        let listener = tokio::net::TcpListener::bind(self.listen).await.map_err(|e| match e.kind() {
            io::ErrorKind::AddrInUse => {
                format!("{} is taken, perhaps by another noctule-lab serve; choose a port by --listen", self.listen)
            }
            _ => format!("--listen {}: {e}", self.listen),
        })?;
        let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
        let token = if self.token.is_some() { "#token=TOKEN, with your token," } else { "" };
        eprintln!("http://{}/{token} shows {}; Ctrl-C ends it", listener.local_addr()?, self.folder.display());
        let tended = Arc::clone(page);
        let tending = tokio::spawn(async move {
            loop {
                tokio::time::sleep(TEND).await;
                let page = Arc::clone(&tended);
                // Its panic would be a defect; the next look is made all the same.
                let _ = tokio::task::spawn_blocking(move || page.runs.tend()).await;
            }
        });
        let serving = tokio::spawn(accept::serve(listener, router(Arc::clone(page), guard), BOUNDS, page.ends.clone()));
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
        end.send_replace(true);
        serving.await?;
        tending.abort();
        Ok(())
    }
}
