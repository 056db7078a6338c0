//! A server that others have written, as a process on a port of its own.

use std::net::Ipv4Addr;
use std::time::Duration;

use reqwest::Client;

use crate::eventually;
use crate::port::free_port_on;
use crate::process::{Process, Program};
use crate::scratch::Scratch;

/// Some are Python programs: a cold start on a busy machine takes some seconds.
const READY_TIMEOUT: Duration = Duration::from_mins(1);

/// One that runs. It ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) process: Process,
    /// Its address.
    pub(crate) endpoint: String,
    /// Reaches it, whatever proxy this machine uses.
    pub(crate) http: Client,
}

impl Server {
    /// Starts `program` on this address of the machine, told its port, and waits until it answers at the path `health`.
    ///
    /// # Panics
    /// When it does not come up, with its log.
    pub(crate) async fn start(address: Ipv4Addr, name: &str, health: &str, program: impl Fn(u16) -> Program) -> Self {
        Self::start_in(&Scratch::new(name), address, name, health, program).await
    }

    /// The same in a folder of the caller's, which holds what the program reads.
    pub(crate) async fn start_in(
        scratch: &Scratch,
        address: Ipv4Addr,
        name: &str,
        health: &str,
        program: impl Fn(u16) -> Program,
    ) -> Self {
        let http = Client::builder().no_proxy().build().expect("an HTTP client");
        for attempt in 1..=5 {
            let port = free_port_on(address);
            let server = Self {
                process: Process::start(scratch, program(port).name(format!("{name}-{attempt}"))),
                endpoint: format!("http://{address}:{port}"),
                http: http.clone(),
            };
            if server.ready(name, health).await {
                return server;
            }
            // Somebody else took the port in between.
        }
        panic!("{name} found no port in five attempts");
    }

    /// Returns true if it answers; `false` when it has ended.
    async fn ready(&self, name: &str, health: &str) -> bool {
        eventually(format_args!("{name} to answer"), READY_TIMEOUT, async || {
            let answer = self.http.get(format!("{}{health}", self.endpoint)).send().await;
            match answer {
                // That it runs is asked after the answer: it might have been somebody else's.
                Ok(answer) if answer.status().is_success() && self.process.is_running() => Ok(true),
                _ if !self.process.is_running() => Ok(false),
                other => Err(format!("{other:?}; the end of its log:\n{}", self.process.log_tail())),
            }
        })
        .await
    }
}
