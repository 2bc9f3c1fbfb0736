// Calls of MPI that fail, for failing_calls.cpp: those of Bertha that other ranks take part in.
// They end as an error of Open MPI does, by the error handler of their communicator.

#include <mpi.h>

#include <csignal>
#include <cstdlib>
#include <cstring>

#include "tests/support/failing_calls.h"

namespace {

/// The result of an own call that fails. By default the handler ends the process.
int failed(MPI_Comm comm) {
  real("MPI_Comm_call_errhandler", &MPI_Comm_call_errhandler)(comm, MPI_ERR_OTHER);
  return MPI_ERR_OTHER;
}

template <class Function, class... Arguments>
int on_comm(const char* name, Function* declared, MPI_Comm comm, Arguments... arguments) {
  if (must_fail("mpi", name)) return failed(comm);
  return real(name, declared)(arguments...);
}

}  // namespace

extern "C" {

int MPI_Init_thread(int* argc, char*** argv, int wanted, int* provided) {
  if (must_fail("mpi", "MPI_Init_thread")) return MPI_ERR_OTHER;
  const int status = real("MPI_Init_thread", &MPI_Init_thread)(argc, argv, wanted, provided);
  const char* what = std::getenv("FAIL_WHAT");
  if (what != nullptr && std::strcmp(what, "signals") == 0) std::signal(SIGUSR1, [](int) {});
  return status;
}
int MPI_Finalize() {
  const bool fails = must_fail("mpi", "MPI_Finalize");
  const int status = real("MPI_Finalize", &MPI_Finalize)();
  return fails ? MPI_ERR_OTHER : status;
}
int MPI_Barrier(MPI_Comm comm) { return on_comm("MPI_Barrier", &MPI_Barrier, comm, comm); }
int MPI_Comm_dup(MPI_Comm comm, MPI_Comm* made) {
  return on_comm("MPI_Comm_dup", &MPI_Comm_dup, comm, comm, made);
}
int MPI_Comm_free(MPI_Comm* comm) { return on_comm("MPI_Comm_free", &MPI_Comm_free, *comm, comm); }
int MPI_Comm_split(MPI_Comm comm, int color, int key, MPI_Comm* made) {
  return on_comm("MPI_Comm_split", &MPI_Comm_split, comm, comm, color, key, made);
}
int MPI_Comm_split_type(MPI_Comm comm, int type, int key, MPI_Info info, MPI_Comm* made) {
  return on_comm("MPI_Comm_split_type", &MPI_Comm_split_type, comm, comm, type, key, info, made);
}
int MPI_Win_allocate_shared(MPI_Aint bytes, int unit, MPI_Info info, MPI_Comm comm, void* memory,
                            MPI_Win* made) {
  return on_comm("MPI_Win_allocate_shared", &MPI_Win_allocate_shared, comm, bytes, unit, info, comm,
                 memory, made);
}
int MPI_Win_free(MPI_Win* window) {  // the other ranks of the node wait for it
  const bool fails = must_fail("mpi", "MPI_Win_free");
  if (fails) real("MPI_Win_call_errhandler", &MPI_Win_call_errhandler)(*window, MPI_ERR_OTHER);
  const int status = real("MPI_Win_free", &MPI_Win_free)(window);
  return fails ? MPI_ERR_OTHER : status;
}
int MPI_Gather(const void* from, int count, MPI_Datatype type, void* to, int to_count,
               MPI_Datatype to_type, int root, MPI_Comm comm) {
  return on_comm("MPI_Gather", &MPI_Gather, comm, from, count, type, to, to_count, to_type, root,
                 comm);
}
int MPI_Iallgather(const void* from, int count, MPI_Datatype type, void* to, int to_count,
                   MPI_Datatype to_type, MPI_Comm comm, MPI_Request* request) {
  return on_comm("MPI_Iallgather", &MPI_Iallgather, comm, from, count, type, to, to_count, to_type,
                 comm, request);
}
int MPI_Iallgatherv(const void* from, int count, MPI_Datatype type, void* to, const int* counts,
                    const int* offsets, MPI_Datatype to_type, MPI_Comm comm, MPI_Request* request) {
  return on_comm("MPI_Iallgatherv", &MPI_Iallgatherv, comm, from, count, type, to, counts, offsets,
                 to_type, comm, request);
}
int MPI_Iallreduce(const void* from, void* to, int count, MPI_Datatype type, MPI_Op operation,
                   MPI_Comm comm, MPI_Request* request) {
  return on_comm("MPI_Iallreduce", &MPI_Iallreduce, comm, from, to, count, type, operation, comm,
                 request);
}
int MPI_Ialltoallv(const void* from, const int* counts, const int* offsets, MPI_Datatype type,
                   void* to, const int* to_counts, const int* to_offsets, MPI_Datatype to_type,
                   MPI_Comm comm, MPI_Request* request) {
  return on_comm("MPI_Ialltoallv", &MPI_Ialltoallv, comm, from, counts, offsets, type, to,
                 to_counts, to_offsets, to_type, comm, request);
}
int MPI_Ibarrier(MPI_Comm comm, MPI_Request* request) {
  return on_comm("MPI_Ibarrier", &MPI_Ibarrier, comm, comm, request);
}
int MPI_Ibcast(void* data, int count, MPI_Datatype type, int root, MPI_Comm comm,
               MPI_Request* request) {
  return on_comm("MPI_Ibcast", &MPI_Ibcast, comm, data, count, type, root, comm, request);
}
int MPI_Isend(const void* from, int count, MPI_Datatype type, int rank, int tag, MPI_Comm comm,
              MPI_Request* request) {
  return on_comm("MPI_Isend", &MPI_Isend, comm, from, count, type, rank, tag, comm, request);
}
int MPI_Irecv(void* to, int count, MPI_Datatype type, int rank, int tag, MPI_Comm comm,
              MPI_Request* request) {
  return on_comm("MPI_Irecv", &MPI_Irecv, comm, to, count, type, rank, tag, comm, request);
}

// Those that poll count when they find the end of what they wait for, as often in every run.
int MPI_Test(MPI_Request* request, int* done, MPI_Status* status) {
  const int result = real("MPI_Test", &MPI_Test)(request, done, status);
  return *done != 0 && must_fail("mpi", "MPI_Test") ? MPI_ERR_OTHER : result;
}
int MPI_Testall(int count, MPI_Request* requests, int* done, MPI_Status* statuses) {
  const int result = real("MPI_Testall", &MPI_Testall)(count, requests, done, statuses);
  return *done != 0 && must_fail("mpi", "MPI_Testall") ? MPI_ERR_OTHER : result;
}
int MPI_Wait(MPI_Request* request, MPI_Status* status) {
  if (must_fail("mpi", "MPI_Wait")) return MPI_ERR_OTHER;
  return real("MPI_Wait", &MPI_Wait)(request, status);
}
}
