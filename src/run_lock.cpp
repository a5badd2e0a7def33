// SPDX-License-Identifier: BSD-3-Clause
// The system gives a lock back when its process ends, however it ends. File systems that do not carry locks from machine to machine are
// why the file also names its owner.
#include "src/run_lock.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "kernels/error.hpp"
#include "src/report/json.hpp"

namespace gyr {

namespace {

struct Owner {
  std::string host, job;
  long pid = 0;
  std::string text() const { return fmt::format("process {} on {}{}", pid, host, job.empty() ? "" : ", job " + job); }
};

Owner myself() {
  Owner me;
  char host[256] = {};
  gethostname(host, sizeof host - 1);
  me.host = host;
  me.pid = getpid();
  for (const char* variable : {"SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID"})
    if (const char* job = std::getenv(variable)) me.job = job;
  return me;
}

// Nobody's where the file is empty or says nothing we understand.
Owner owner_in(int descriptor) {
  char text[2048] = {};
  const ssize_t bytes = pread(descriptor, text, sizeof text - 1, 0);
  const Json json = json_in({text, std::size_t(bytes > 0 ? bytes : 0)});
  if (!json.is_object()) return {};
  try {
    return {json.at("host"), json.at("job"), json.at("pid")};
  } catch (const Json::exception&) {
    return {};
  }
}

}  // namespace

RunLock::RunLock(const std::filesystem::path& folder, bool take_over)
    : name_((folder / "lock").string()), descriptor_(::open(name_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666)) {
  require(descriptor_ >= 0, Exit::io, "{}: cannot be opened: {}; choose another output.folder", name_, std::strerror(errno));
  const bool locked = flock(descriptor_, LOCK_EX | LOCK_NB) == 0;
  const bool taken = !locked && errno == EWOULDBLOCK;  // where a file system knows no locks the name alone must do
  const Owner me = myself(), before = owner_in(descriptor_);
  const bool stranger = before.pid != 0 && before.host != me.host;
  try {
    require(!taken, Exit::io, "{}: another run writes to this folder: {}; wait for it, end it, or choose another output.folder", name_, before.text());
    require(!stranger || take_over, Exit::io,
            "{}: {} has not given this folder back; if that run has ended, say --take-over, otherwise choose another output.folder", name_,
            before.text());
  } catch (...) {
    ::close(descriptor_);
    throw;
  }
  if (before.pid != 0) note_ = fmt::format("output folder taken over from {}, which has ended without giving it back", before.text());
  const std::string text = json_text({{"host", me.host}, {"pid", me.pid}, {"job", me.job}}) + "\n";
  const bool said = ftruncate(descriptor_, 0) == 0 && pwrite(descriptor_, text.data(), text.size(), 0) == ssize_t(text.size());
  const int why = errno;
  if (!said) ::close(descriptor_);
  require(said, Exit::io, "{}: cannot be written: {}", name_, std::strerror(why));
}

// Emptied rather than removed: a file of the same name could otherwise be locked twice.
RunLock::~RunLock() {
  [[maybe_unused]] const int emptied = ftruncate(descriptor_, 0);  // where it fails, the next run takes the folder over
  ::close(descriptor_);
}

}  // namespace gyr
