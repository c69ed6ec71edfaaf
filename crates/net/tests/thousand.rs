//! A thousand connections that are opened and dropped. By itself in its process, whose descriptors and threads are counted.

mod support;

use noctule::Endpoint;
use support::*;

/// Descriptors and threads of this process, and tasks of its runtime.
fn held() -> (usize, usize, usize) {
    let entries = |directory| std::fs::read_dir(directory).unwrap().count();
    (entries("/proc/self/fd"), entries("/proc/self/task"), tokio::runtime::Handle::current().metrics().num_alive_tasks())
}

/// As many sessions at once as a server keeps of one key, with a stream each; they are dropped in three manners.
async fn open_and_drop(client: &Endpoint, server: &Endpoint, rounds: usize) {
    for round in 0..rounds {
        let mut sessions = Vec::new();
        for _ in 0..25 {
            sessions.push(join(client, server.local_addr(), server).await);
        }
        for (n, (ours, theirs)) in sessions.into_iter().enumerate() {
            let (mut send, recv) = ours.open_bi(Default::default()).unwrap();
            within(send.write_all(b"hello")).await.unwrap();
            match (round + n) % 3 {
                0 => ours.abort(1, "dropped"),
                1 => drop((send, recv)),
                _ => drop(theirs),
            }
        }
        within(client.wait_idle()).await;
        within(server.wait_idle()).await;
    }
}

#[tokio::test]
async fn a_thousand_connections_leave_no_descriptor_thread_task_or_memory_behind() {
    let before = held();
    {
        let (client, server) = (bind("127.0.0.1:0", config(1)), bind("127.0.0.1:0", config(2)));
        open_and_drop(&client, &server, 1).await;
        let first = held();
        open_and_drop(&client, &server, 39).await;
        assert_eq!(held(), first);
        // What the last flows held goes with the turns that follow.
        within(async {
            while client.stats().memory.used + server.stats().memory.used > 0 {
                tokio::time::sleep(std::time::Duration::from_millis(10)).await;
            }
        })
        .await;
    }
    within(async {
        while held() > before {
            tokio::task::yield_now().await;
        }
    })
    .await;
}
