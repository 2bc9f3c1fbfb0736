#pragma once

namespace bertha {

/// SIGTERM, SIGUSR1 and SIGINT request a checkpoint at the end of the step; a second signal ends
/// the process immediately. SIGPIPE, if a reader of the output exits, is ignored. Call this before
/// MPI starts, so that a signal during initialization is remembered and the run stops before its
/// first step, and again afterwards, because libraries that MPI loads replace handlers: hwloc opens
/// OpenCL if installed, whose LLVM handles SIGUSR1. The handler only sets a flag.
void watch_signals();
bool stop_was_requested();
/// Whether a SIGTERM came from the parent process: the launcher ends the job, and kills the
/// remaining processes after some seconds.
bool launcher_ends_job();

}  // namespace bertha
