#pragma once

namespace bertha {

/// SIGTERM, SIGUSR1 and SIGINT ask for a checkpoint at the end of the step. A second one ends the
/// process at once. A reader of the output that goes away (SIGPIPE) ends nothing. To be called
/// before MPI starts: a signal during initialisation is remembered, and the run stops before its
/// first step. And after it, because libraries that MPI loads take signals: hwloc opens OpenCL
/// where it is installed, and its LLVM keeps SIGUSR1 to itself. The flag is all that a signal
/// handler can reach.
void watch_signals();
bool stop_was_requested();
/// Whether a SIGTERM came from the process that started this one: the launcher ends the job, and
/// kills what is left after some seconds.
bool launcher_ends_job();

}  // namespace bertha
