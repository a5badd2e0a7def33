// SPDX-License-Identifier: BSD-3-Clause
// Simulates a full disk for the current process, by a limit on file sizes (RLIMIT_FSIZE).
#pragma once

#include <signal.h>
#include <sys/resource.h>

namespace gyr::testing {

// During its lifetime, writes of this process beyond `bytes` of any file fail.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) : handler_(signal(SIGXFSZ, SIG_IGN)) {
    getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit full{bytes, before_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &full);
  }
  ~FileSizeLimit() {
    setrlimit(RLIMIT_FSIZE, &before_);
    signal(SIGXFSZ, handler_);
  }

 private:
  rlimit before_;
  sighandler_t handler_;
};

}  // namespace gyr::testing
