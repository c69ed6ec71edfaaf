//! Connections: so many at the same time, and none that keeps its place without asking for anything.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};

/// After an error of the listener, such as too many open files.
const PAUSE: Duration = Duration::from_millis(100);

/// What connections may take.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// Connections at the same time; others wait until one has ended.
    pub connections: u32,
    /// From the beginning of a connection, or its last answer, to the end of the next request's head.
    pub head: Duration,
    /// How long answers under way may take once the server ends.
    pub last: Duration,
}

/// Serves until `end` is true or its sender is gone, then lets answers under way come to their end.
pub async fn serve(listener: TcpListener, router: Router, bounds: Bounds, mut end: watch::Receiver<bool>) {
    let places = Arc::new(Semaphore::new(bounds.connections as usize));
    let ends = end.clone();
    let accepting = async {
        // The place first: connections beyond the bound wait in the kernel and take nothing here. The semaphore is never closed.
        while let Ok(place) = Arc::clone(&places).acquire_owned().await {
            let Ok((socket, _)) = listener.accept().await else {
                tokio::time::sleep(PAUSE).await;
                continue;
            };
            let (router, end) = (router.clone(), ends.clone());
            tokio::spawn(async move {
                answer(socket, router, bounds.head, end).await;
                drop(place);
            });
        }
    };
    tokio::select! {
        () = accepting => {}
        // Fails only when the sender is gone, and then it is over as well.
        _ = end.wait_for(|is_over| *is_over) => {}
    }
    // Connections that still wait for a place are not served any more.
    drop(listener);
    let _ = tokio::time::timeout(bounds.last, places.acquire_many(bounds.connections)).await;
}

/// One connection. That it broke off is nothing to tell.
async fn answer(socket: TcpStream, router: Router, head: Duration, mut end: watch::Receiver<bool>) {
    // Events are small, and each is wanted at once.
    let _ = socket.set_nodelay(true);
    let mut protocol = http1::Builder::new();
    protocol.timer(TokioTimer::new()).header_read_timeout(head);
    let mut connection = pin!(protocol.serve_connection(TokioIo::new(socket), TowerToHyperService::new(router)));
    tokio::select! {
        _ = connection.as_mut() => return,
        _ = end.wait_for(|is_over| *is_over) => {}
    }
    connection.as_mut().graceful_shutdown();
    let _ = connection.await;
}

#[cfg(test)]
mod tests {
    use axum::routing::get;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    async fn ask(socket: &mut TcpStream) -> String {
        socket.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
        let mut answer = vec![0; 4096];
        let n = socket.read(&mut answer).await.unwrap();
        String::from_utf8(answer[..n].to_vec()).unwrap()
    }

    async fn server(connections: u32, head: Duration) -> (std::net::SocketAddr, watch::Sender<bool>, tokio::task::JoinHandle<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (end, ends) = watch::channel(false);
        let router = Router::new().route("/", get(async || "here"));
        (address, end, tokio::spawn(serve(listener, router, Bounds { connections, head, last: HOUR }, ends)))
    }

    #[tokio::test]
    async fn a_connection_that_asks_for_nothing_loses_its_place() {
        let (address, end, serving) = server(1, Duration::from_millis(50)).await;
        let mut silent = TcpStream::connect(address).await.unwrap();
        silent.write_all(b"GET / HTTP/1.1\r\nHos").await.unwrap();
        let mut other = TcpStream::connect(address).await.unwrap();
        assert!(ask(&mut other).await.contains("here"));
        end.send_replace(true);
        serving.await.unwrap();
    }

    #[tokio::test]
    async fn a_connection_beyond_the_bound_waits_until_another_ends() {
        let (address, end, serving) = server(2, HOUR).await;
        let mut held = Vec::new();
        for _ in 0..2 {
            let mut socket = TcpStream::connect(address).await.unwrap();
            assert!(ask(&mut socket).await.contains("here"));
            held.push(socket);
        }
        let mut late = TcpStream::connect(address).await.unwrap();
        late.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
        // Those that have a place are answered many times over, the other is not.
        for _ in 0..20 {
            assert!(ask(&mut held[0]).await.contains("here"));
        }
        let mut nothing = [0];
        assert_eq!(late.try_read(&mut nothing).unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
        held.pop();
        let mut answer = [0; 12];
        late.read_exact(&mut answer).await.unwrap();
        assert_eq!(&answer, b"HTTP/1.1 200");
        // Connections that are open and idle do not hold a server that ends.
        end.send_replace(true);
        serving.await.unwrap();
    }
}
