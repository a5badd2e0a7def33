# Rules of `make install PREFIX=...` and `cmake --install`: the program, its man pages and shell completions (which the
# program itself writes), decks, jobscripts (which find the program of their prefix), pages with the files that they link,
# and a module file for Lmod and Environment Modules.
include(GNUInstallDirs)
set_target_properties(gyrfalcon PROPERTIES INSTALL_RPATH_USE_LINK_PATH ON)  # for libraries outside the system folders
install(TARGETS gyrfalcon)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/input/ DESTINATION share/gyrfalcon/input FILES_MATCHING PATTERN "*.yaml")

# Pages keep their folders, so that the links between them work. Pictures, decks and sources that a page links are installed
# next to it.
file(GLOB_RECURSE pages CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR} input/*.md jobscripts/*.md kernels/*.md modules/*.md regression/*.md src/*.md)
set(documents README.md ${pages})
foreach(page README.md ${pages})
  file(READ ${PROJECT_SOURCE_DIR}/${page} text)
  string(REPLACE "](" "LINK(" text "${text}")
  string(REGEX REPLACE "[][;]" " " text "${text}")  # these characters separate or group the elements of lists
  string(REGEX MATCHALL "LINK[(][^)#: ]+" links "${text}")
  foreach(link IN LISTS links)
    cmake_path(GET page PARENT_PATH file)
    string(REPLACE "LINK(" "" link "${link}")
    cmake_path(APPEND file "${link}")
    cmake_path(NORMAL_PATH file)
    if(EXISTS ${PROJECT_SOURCE_DIR}/${file} AND NOT IS_DIRECTORY ${PROJECT_SOURCE_DIR}/${file})
      list(APPEND documents ${file})
    endif()
  endforeach()
endforeach()
list(REMOVE_DUPLICATES documents)
foreach(document IN LISTS documents)
  cmake_path(GET document PARENT_PATH folder)
  install(FILES ${PROJECT_SOURCE_DIR}/${document} DESTINATION share/doc/gyrfalcon/${folder})
endforeach()
set(jobscripts job launcher pbs-cpu pbs-gpu pbs-gpu8 rank_gpu slurm-array slurm-cpu slurm-gpu slurm-gpu8 submit)
list(TRANSFORM jobscripts REPLACE "(.+)" "${PROJECT_SOURCE_DIR}/jobscripts/\\1.sh")
install(PROGRAMS ${jobscripts} DESTINATION share/gyrfalcon/jobscripts)
install(FILES ${PROJECT_SOURCE_DIR}/jobscripts/start.sh ${PROJECT_SOURCE_DIR}/jobscripts/site.example.sh DESTINATION share/gyrfalcon/jobscripts)
install(CODE "
  set(prefix \"\${CMAKE_INSTALL_PREFIX}\")
  cmake_path(ABSOLUTE_PATH prefix NORMALIZE)
  set(version ${PROJECT_VERSION})
  set(root \"\$ENV{DESTDIR}\${prefix}\")
  configure_file(\"${PROJECT_SOURCE_DIR}/jobscripts/modulefile.in\" \"\${root}/share/modulefiles/gyrfalcon/\${version}\" @ONLY)
  execute_process(COMMAND \"\${root}/bin/gyrfalcon\" manual \"\${root}\" RESULT_VARIABLE code ERROR_VARIABLE why OUTPUT_QUIET)
  if(NOT code EQUAL 0)
    message(WARNING \"man pages and shell completions are not installed, because the program does not run on this machine. Run gyrfalcon manual \${prefix} where it does. Error: \${why}\")
  endif()
  message(STATUS \"to use it: module use \${prefix}/share/modulefiles && module load gyrfalcon, or PATH=\${prefix}/bin:$PATH\")
")
