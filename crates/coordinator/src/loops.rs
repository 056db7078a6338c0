//! The tasks beside the controllers.

use std::borrow::Cow;
use std::convert::Infallible;

use tidewaiter_kit::Tasks;

/// Runs a task that ends only with the process.
pub(crate) fn run(
    tasks: &mut Tasks,
    name: impl Into<Cow<'static, str>>,
    task: impl Future<Output = ()> + Send + 'static,
) {
    let shutdown = tasks.shutdown_token();
    tasks.spawn(name, async move {
        shutdown.run_until_cancelled(task).await;
        Ok::<(), Infallible>(())
    });
}
