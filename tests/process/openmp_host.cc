// Results must not depend on what else a process has loaded. This one loads the library as a plugin, as Python does,
// and then a second OpenMP for everybody: a name that is looked up from now on means the second, oneDNN continues with
// the first.
#include <dlfcn.h>
#include <link.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>

namespace {

int fail(const char* what) {
  const char* why = ::dlerror();
  std::fprintf(stderr, "openmp_host: %s%s%s\n", what, why == nullptr ? "" : ": ", why == nullptr ? "" : why);
  return 1;
}

/// The path of the libgomp that came with the plugin, if any.
std::string path_of_openmp() {
  std::string path;
  ::dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* found) {
        const std::string name = info->dlpi_name;
        if (name.find("libgomp") != std::string::npos) *static_cast<std::string*>(found) = name;
        return 0;
      },
      &path);
  return path;
}

using SetThreads = void (*)(int);

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return fail("usage: openmp_host PLUGIN");
  void* plugin = ::dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
  if (plugin == nullptr) return fail("the plugin cannot be loaded");
  const auto product = reinterpret_cast<void (*)(bool, float(&)[31 * 33])>(::dlsym(plugin, "alibi_test_product"));
  if (product == nullptr) return fail("the plugin has no product");
  const std::string first = path_of_openmp();
  if (first.empty()) {
    std::puts("oneDNN has no libgomp here: nothing to be tested");
    return 0;
  }
  std::string folder = (std::filesystem::temp_directory_path() / "alibi_openmp_XXXXXX").string();
  if (::mkdtemp(folder.data()) == nullptr) return fail("there is no temporary folder");
  const std::filesystem::path copy = std::filesystem::path(folder) / "libsecond.so";
  std::filesystem::copy_file(first, copy);
  void* second = ::dlopen(copy.c_str(), RTLD_NOW | RTLD_GLOBAL);
  std::filesystem::remove_all(folder);
  if (second == nullptr) return fail("the second OpenMP cannot be loaded");

  void* library = ::dlopen(first.c_str(), RTLD_NOW | RTLD_NOLOAD);
  const auto set_first = reinterpret_cast<SetThreads>(::dlsym(library, "omp_set_num_threads"));
  const auto set_found = reinterpret_cast<SetThreads>(::dlsym(RTLD_DEFAULT, "omp_set_num_threads"));
  if (set_first == nullptr || set_found == nullptr || set_first == set_found) {
    return fail("the two OpenMPs are not what this test needs");
  }
  float one[31 * 33], many[31 * 33];
  set_first(1);
  product(false, one);
  set_first(4);
  product(true, many);
  if (std::memcmp(one, many, sizeof one) != 0) return fail("the bits depend on the threads of the first OpenMP");
  return 0;
}
